"""Element types: sizes, NumPy and ml_dtypes counterparts, other libraries' types, and being constants."""

import copy
import pickle
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from hcq import dtypes


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=repr)
def test_every_dtype_has_a_numpy_counterpart_of_its_size(dtype):
    assert dtype.numpy.itemsize == dtype.itemsize
    assert dtypes.of(dtype.numpy) is dtype
    assert dtypes.of(dtype.name) is dtype
    assert dtypes.to_numpy(dtype) == dtype.numpy
    assert getattr(dtypes, dtype.name) is dtype


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=repr)
def test_numpy_takes_these_constants_wherever_it_takes_a_dtype(dtype):
    assert np.dtype(dtype) == dtype.numpy and np.ones(2, dtype).dtype == dtype.numpy


def test_the_machine_learning_types_are_those_of_ml_dtypes():
    assert dtypes.bfloat16.numpy == np.dtype(ml_dtypes.bfloat16)
    assert dtypes.float8_e4m3fn.numpy == np.dtype(ml_dtypes.float8_e4m3fn)
    assert dtypes.of(np.dtype(ml_dtypes.float8_e5m2)) is dtypes.float8_e5m2


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bool])
def test_dtypes_are_constants(dtype):
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert copy.deepcopy(dtype) is dtype
    assert {dtype: 1}[dtype] == 1
    with pytest.raises(AttributeError, match="constants"):
        dtype.itemsize = 3
    with pytest.raises(AttributeError, match="constants"):
        del dtype.name


class Foreign:
    """Another library's dtype: a size, a C name, a struct code."""

    def __init__(self, itemsize, name, fmt=None):
        self.itemsize, self.name, self.fmt = itemsize, name, fmt


@pytest.mark.parametrize(
    ("foreign", "ours"),
    [
        (Foreign(4, "float", "f"), np.float32),
        (Foreign(1, "unsigned char", "B"), np.uint8),
        (Foreign(2, "half", "e"), np.float16),
        (Foreign(2, "__bf16"), ml_dtypes.bfloat16),
        (Foreign(8, "unsigned long", "Q"), np.uint64),
        (Foreign(1, "bool", "?"), np.bool_),
        (np.float32, np.float32),
        ("int16", np.int16),
        ("<f4", np.float32),
    ],
)
def test_types_of_other_libraries_are_understood(foreign, ours):
    assert dtypes.to_numpy(foreign) == np.dtype(ours)


@pytest.mark.parametrize("foreign", [Foreign(16, "float4"), Foreign(8, "float"), object(), "nothing"])
def test_a_type_that_numpy_lacks_is_refused(foreign):
    with pytest.raises(TypeError):
        dtypes.to_numpy(foreign)
    with pytest.raises(TypeError, match="no element type"):
        dtypes.of(foreign)


@pytest.mark.parametrize("dtype", [dtypes.float64, np.dtype("f8"), Foreign(8, "anything")])
def test_anything_with_an_integer_itemsize_is_a_dtype(dtype):
    assert dtypes.itemsize(dtype) == 8


@pytest.mark.parametrize("dtype", [None, 4, Foreign(0, "x"), Foreign(-4, "x"), Foreign(1.5, "x"), Foreign(True, "x")])
def test_a_dtype_without_a_size_is_refused(dtype):
    with pytest.raises(TypeError, match="itemsize"):
        dtypes.itemsize(dtype)


def test_dtypes_need_no_numpy():
    code = f"import sys; sys.path[:] = {sys.path!r}; from hcq import dtypes; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n", done.stderr
