"""The NPY device: arrays are read in place, nothing is allocated or compiled, and a fork does no harm."""

import gc
import os
import pickle
import weakref

import ml_dtypes
import numpy as np
import pytest

import hcq
from hcq import Buffer, Device, dtypes
from hcq.errors import InvalidProgram, UnknownDevice


@pytest.fixture
def array():
    return np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def wrap(array, device="NPY"):
    return Buffer(device, array.size, array.dtype, opaque=array)


def test_a_buffer_reads_the_array_itself(array):
    buf = wrap(array)
    assert bytes(buf.as_buffer()) == array.tobytes()
    shared = buf.as_buffer(force_zero_copy=True)
    array[0, 0, 0] = 7
    assert shared.cast("f")[0] == 7
    assert buf._buf is array
    assert np.array_equal(buf.numpy().ravel(), array.ravel())


def test_copyout_takes_the_arrays_bytes(array):
    out = np.zeros(24, np.float32)
    wrap(array).copyout(out)
    assert np.array_equal(out, array.ravel())


@pytest.mark.parametrize(
    "array",
    [
        np.arange(5, dtype=ml_dtypes.bfloat16),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        np.array(3.5),
        np.zeros(3, dtype=[("a", "u1"), ("b", "f8")]),
        np.arange(4)[:2],
    ],
    ids=["bfloat16", "dates", "no dimensions", "records", "a slice"],
)
def test_any_contiguous_array_will_do(array):
    assert bytes(wrap(array).as_buffer(force_zero_copy=True)) == array.tobytes()


def test_a_read_only_array_stays_read_only():
    array = np.arange(4)
    array.flags.writeable = False
    assert wrap(array).as_buffer(force_zero_copy=True).readonly


def test_a_view_reads_its_part(array):
    view = wrap(array).view(4, dtypes.float32, 8)
    assert np.array_equal(np.frombuffer(bytes(view.as_buffer()), np.float32), [2, 3, 4, 5])


def test_copies_come_from_arrays_and_go_into_writable_ones(array):
    dest = Buffer("CPU", 24, dtypes.float32).allocate()
    hcq.copy(dest, wrap(array))
    assert np.array_equal(dest.numpy(), array.ravel())
    back = np.zeros(24, np.float32)
    hcq.copy(wrap(back), dest)
    assert np.array_equal(back, array.ravel())
    wrap(back).copyin(np.ones(24, np.float32))
    assert back.sum() == 24
    back.flags.writeable = False
    with pytest.raises(TypeError, match="read-only"):
        wrap(back).copyin(array)


@pytest.mark.parametrize("strided", [np.arange(8)[::2], np.zeros((4, 4)).T[1:], np.asfortranarray(np.zeros((2, 3)))])
def test_a_strided_array_is_refused(strided):
    with pytest.raises(ValueError, match="ascontiguousarray"):
        wrap(strided).as_buffer()


def test_what_is_no_memory_is_refused():
    with pytest.raises(TypeError, match="references"):
        wrap(np.array([object()])).as_buffer()
    with pytest.raises(TypeError, match="C-contiguous buffer"):
        Buffer("NPY", 1, dtypes.float32, opaque=object()).as_buffer()


def test_a_buffer_of_another_size_than_the_array_is_refused(array):
    with pytest.raises(ValueError, match="96 bytes, and the other side of the copy has 100"):
        Buffer("NPY", 25, dtypes.float32, opaque=array).as_buffer()


def test_nothing_is_allocated_or_run(array):
    with pytest.raises(TypeError, match="opaque=array"):
        Buffer("NPY", 4, dtypes.float32).ensure_allocated()
    with pytest.raises(InvalidProgram, match="runs no programs"):
        Device["NPY"].program("f", "source")


def test_a_pickled_buffer_carries_its_array(array):
    back = pickle.loads(pickle.dumps(wrap(array)))
    array[:] = 0
    assert np.array_equal(back.numpy().ravel(), np.arange(24))


def test_the_array_is_kept_while_it_is_used_and_let_go():
    array = np.arange(4, dtype=np.float32)
    gone = weakref.ref(array)
    buf = wrap(array)
    del array
    view = buf.as_buffer(force_zero_copy=True)
    del buf
    assert view.cast("f")[1] == 1
    del view
    gc.collect()
    assert gone() is None


def test_numbered_devices_are_alike_and_others_unknown():
    assert Device["NPY:1"].dname == "NPY:1"
    with pytest.raises(UnknownDevice):
        Device["NPY:x"]


def test_a_forked_child_goes_on_reading(array):
    buf = wrap(array)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = bytes(buf.as_buffer()) + bytes(wrap(array).as_buffer())
        except BaseException as error:
            answer = repr(error).encode()
        os.write(write, answer)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answers:
        assert answers.read() == array.tobytes() * 2
    os.waitpid(pid, 0)
