"""The dtype of a batch that is given for a torch module."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from gbackprop.interop.importing import _batch  # noqa: E402


def test_a_batch_has_the_dtype_of_its_floats():
    for given, want in (("float64", "float64"), ("float32", "float32"), ("float16", "float32"), ("int64", "float32")):
        x, dtype, _ = _batch(np.ones((2, 3), given), None)
        assert dtype == want
        assert str(x.dtype) == f"torch.{want if given != 'int64' else given}"
    for wrong in (np.ones(()), np.ones((0, 2)), [1, 2]):
        with pytest.raises(TypeError, match="example: expected an array or a tensor of at least one sample"):
            _batch(wrong, None)
    assert len(_batch(np.ones(1), None)[0]) == 1
