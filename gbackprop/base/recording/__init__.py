"""Arrays that compute as NumPy does and write down what is done to them, and the errors of doing so."""
