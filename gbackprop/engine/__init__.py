"""The fast engine: `gbackprop.backward` in blocks of samples and columns, with threads, reused memory and fast forms.

`sweep` derives from the plain sweep in `gbackprop.reference`; `forms` contains faster versions of functions of
`gbackprop.layers`, each registered under the function that it replaces. Without any forms the results are the same.
"""
