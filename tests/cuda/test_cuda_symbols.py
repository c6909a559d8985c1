"""Variables of CUDA C and PTX in the device's memory, as buffers: __constant__ and __device__."""

import gc

import numpy as np
import pytest

import hcq
from hcq.errors import InvalidProgram

SOURCE = """
__constant__ float weights[4];
__device__ int count = 5;
namespace inner { __device__ double value; }
extern "C" __global__ void apply(float *out, const float *in) {
  int i = threadIdx.x;
  out[i] = weights[i & 3] * in[i] + (float)inner::value;
  if (i == 0) atomicAdd(&count, 1);
}
"""


@pytest.fixture
def apply(dev, nvrtc):
    return dev.program("apply", SOURCE)


@pytest.fixture
def memory(dev):
    return hcq.zeros(8, hcq.f32, "CUDA"), hcq.array(np.arange(8, dtype=np.float32), "CUDA")


def test_variables_are_buffers_that_kernels_and_copies_share(dev, apply, memory):
    out, x = memory
    weights, count = apply.symbol("weights", hcq.f32), apply.symbol("count", hcq.i32)
    assert (weights.size, weights.device, count.numpy().tolist()) == (4, "CUDA", [5])
    weights.copyin(np.array([1, 10, 100, 1000], np.float32))
    apply.symbol("_ZN5inner5valueE", hcq.f64).copyin(np.array([0.5]))
    apply(out, x, local_size=(8, 1, 1))
    assert out.numpy().tolist() == [0.5, 10.5, 200.5, 3000.5, 4.5, 50.5, 600.5, 7000.5]
    assert count.numpy().tolist() == [6]
    assert apply.symbol("weights").nbytes == 16, "bytes where no type is given"


def test_they_belong_to_the_program_and_to_what_is_made_of_it(dev, apply, memory):
    out, x = memory
    other, same = dev.program("apply", SOURCE), apply.with_local_memory(64)
    for program in (apply, same, other):
        program(out, x, local_size=(8, 1, 1))
    assert [each.symbol("count", hcq.i32).numpy()[0] for each in (apply, same, other)] == [7, 7, 6]


def test_graphs_write_and_read_them(dev, apply, memory):
    out, x = memory
    weights = apply.symbol("weights", hcq.f32)
    given = hcq.array(np.full(4, 2, np.float32), "CUDA")
    with hcq.capture(inputs={"given": given}) as graph:
        hcq.copy(weights, given)
        apply(out, x, local_size=(8, 1, 1))
    graph.replay().wait()
    assert out.numpy().tolist() == list(range(0, 16, 2))
    graph.replay(given=hcq.array(np.full(4, 3, np.float32), "CUDA")).wait()
    assert out.numpy().tolist() == list(range(0, 24, 3))


def test_a_buffer_of_one_keeps_the_program_loaded(dev, apply):
    weights = apply.symbol("weights", hcq.f32)
    weights.copyin(np.arange(4, dtype=np.float32))
    address = weights._buf.va_addr
    del apply
    gc.collect()
    others = [dev.program("apply", SOURCE).symbol("weights", hcq.f32)._buf.va_addr for _ in range(3)]
    assert address not in others and weights.numpy().tolist() == [0, 1, 2, 3]


def test_what_is_not_there_or_has_another_size_is_refused(dev, apply):
    with pytest.raises(InvalidProgram, match="apply: the library has no variable 'absent'"):
        apply.symbol("absent")
    with pytest.raises(InvalidProgram, match="no variable"):
        apply.symbol("count\0er")
    with pytest.raises(TypeError, match="apply: a variable is asked for by its name, not by 5"):
        apply.symbol(5)
    with pytest.raises(ValueError, match=r"count has 4 bytes.*8 of f64"):
        apply.symbol("count", hcq.f64)
