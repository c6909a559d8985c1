"""Local memory whose size a program is given: CUDA's dynamic shared memory, by launches of every kind."""

import numpy as np
import pytest

import hcq
from hcq.errors import LaunchError

SOURCE = """
extern "C" __global__ void turn(int *out, const int *in) {
  extern __shared__ int tile[];
  int me = threadIdx.x, last = blockDim.x - 1, first = blockIdx.x * blockDim.x;
  tile[me] = in[first + me];
  __syncthreads();
  out[first + me] = tile[last - me];
}
extern "C" __global__ void size(unsigned *out) {
  asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(out[0]));
}
extern "C" __global__ void both(int *out) {
  __shared__ int own[1024];
  extern __shared__ int more[];
  own[threadIdx.x] = threadIdx.x;
  more[threadIdx.x] = 2 * threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = own[63 - threadIdx.x] + more[63 - threadIdx.x];
}
extern "C" __global__ void far(int *out, int last) {
  extern __shared__ int tile[];
  if (threadIdx.x == 0) tile[last] = 7;
  __syncthreads();
  out[threadIdx.x] = tile[last];
}
"""
PTX = """
.version 7.0
.target sm_70
.address_size 64
.extern .shared .align 4 .b8 tile[];
.visible .entry keep(.param .u64 .ptr .global out, .param .u32 v)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [v];
  st.shared.u32 [tile+60], %r1;
  ld.shared.u32 %r2, [tile+60];
  st.global.u32 [%rd1], %r2;
  ret;
}
"""


@pytest.fixture
def ints():
    return hcq.array(np.arange(128, dtype=np.int32), "CUDA")


def turned():
    return np.arange(128).reshape(2, 64)[:, ::-1].reshape(-1)


def test_a_program_has_so_much_beside_what_its_kernel_declares(dev, nvrtc, ints):
    plain = dev.program("turn", SOURCE)
    turn = plain.with_local_memory(256)
    assert (plain.local_memory_bytes, turn.local_memory_bytes, turn.name) == (0, 256, "turn")
    out = hcq.zeros(128, hcq.i32, "CUDA")
    assert turn(out, ints, global_size=(2, 1, 1), local_size=(64, 1, 1), wait=True) > 0
    assert (out.numpy() == turned()).all()
    both = dev.program("both", SOURCE).with_local_memory(np.int64(256))
    both(out, local_size=(64, 1, 1))
    assert (out.numpy()[:64] == 3 * np.arange(64)[::-1]).all()


@pytest.mark.parametrize("nbytes", [0, 4, 1000, 48 << 10])
def test_a_kernel_sees_the_size_that_was_given(dev, nvrtc, nbytes):
    out = hcq.zeros(1, hcq.u32, "CUDA")
    size = dev.program("size", SOURCE).with_local_memory(8).with_local_memory(nbytes)
    size(out)
    assert out.numpy()[0] == nbytes


def test_more_than_a_kernel_may_declare_is_had(dev, nvrtc):
    most = dev.found.facts["local_memory_most"]
    if most <= 48 << 10:
        pytest.skip("this device has no more than 48 KiB")
    out = hcq.zeros(64, hcq.i32, "CUDA")
    far = dev.program("far", SOURCE)
    less = far.with_local_memory(50 << 10)
    far.with_local_memory(most)(out, vals=(most // 4 - 1,), local_size=(64, 1, 1))
    assert (out.numpy() == 7).all()
    less(out, vals=(0,), local_size=(64, 1, 1), wait=True)  # what one was given does not end what another has
    dev.program("both", SOURCE).with_local_memory(most - 4096)(out, local_size=(64, 1, 1), wait=True)


def test_too_much_and_wrong_sizes_are_refused_before_anything_is_queued(dev, nvrtc):
    most = dev.found.facts["local_memory_most"]
    both = dev.program("both", SOURCE)
    before = dev.timeline_value
    for wrong in (-1, 1.5, "16", None, 2**40, most + 1):
        with pytest.raises(LaunchError, match="local memory"):
            both.with_local_memory(wrong)
    with pytest.raises(LaunchError, match=rf"both: .*{most - 4096 + 4}.*declares 4096.*{most}"):
        both.with_local_memory(most - 4096 + 4)
    assert dev.timeline_value == before


def test_ptx_with_memory_of_no_size_of_its_own_takes_one(dev):
    out = hcq.zeros(1, hcq.i32, "CUDA")
    dev.program("keep", PTX).with_local_memory(64)(out, vals=(11,))
    assert out.numpy()[0] == 11


def test_prepared_and_streamed_launches_have_it(dev, nvrtc, ints):
    turn = dev.program("turn", SOURCE).with_local_memory(256)
    out = hcq.zeros(128, hcq.i32, "CUDA")
    dev.synchronize()
    stream = dev.stream()
    turn.prepare(out, ints, global_size=(2, 1, 1), local_size=(64, 1, 1))(stream=stream)
    stream.synchronize()
    assert (out.numpy() == turned()).all()
    array = np.zeros(128, np.int32)
    turn(array, ints, global_size=(2, 1, 1), local_size=(64, 1, 1))
    assert (array == turned()).all()


def test_bound_queues_graphs_and_their_updates_have_it(dev, nvrtc, ints):
    turn = dev.program("turn", SOURCE).with_local_memory(256)
    x, y = hcq.zeros(128, hcq.i32, "CUDA"), hcq.zeros(128, hcq.i32, "CUDA")
    sizes = {"global_size": (2, 1, 1), "local_size": (64, 1, 1)}
    turn(x, ints, **sizes, wait=True)
    with hcq.capture(inputs={"x": x}) as graph:
        for _ in range(3):
            turn(y, x, **sizes)
            turn(x, y, **sizes)
    graph.replay().wait()
    assert (y.numpy() == np.arange(128)).all() and (x.numpy() == turned()).all()
    other = hcq.array(np.arange(128, dtype=np.int32), "CUDA")
    graph.replay(x=other).wait()
    assert (other.numpy() == np.arange(128)).all()
    assert (y.numpy() == turned()).all()

    done, queue = dev.signal_t(), dev.hw_compute_queue_t()
    for out, src in ((y, x), (x, y), (y, x)):
        queue.exec(turn, turn.fill_kernargs([out._buf, src._buf]), (2, 1, 1), (64, 1, 1))
    queue.signal(done, 1).bind(dev)
    y.fill(0)
    dev.synchronize()
    queue.submit(dev)
    done.wait(1)
    assert (y.numpy() == np.arange(128)).all()
    y.fill(0)
    dev.synchronize()
    for index in (0, 2):
        queue.update_exec(index, (1, 1, 1), (64, 1, 1))
    queue.update_signal(3, value=2).submit(dev)
    done.wait(2)
    assert (y.numpy()[:64] == np.arange(64)).all() and not y.numpy()[64:].any()


def test_a_saved_graph_keeps_it(dev, nvrtc, ints, tmp_path):
    turn = dev.program("turn", SOURCE).with_local_memory(256)
    out = hcq.zeros(128, hcq.i32, "CUDA")
    with hcq.capture() as graph:
        turn(out, ints, global_size=(2, 1, 1), local_size=(64, 1, 1))
    graph.save(tmp_path / "turn.hcqg")
    from hcq.graph import saved

    run = saved.SavedGraph(tmp_path / "turn.hcqg").on("CUDA")
    run.run()
    assert any((run._buffers[index].numpy() == turned()).all() for index in range(len(run._buffers)))


def test_what_was_said_of_a_program_holds_for_it_with_memory(dev, nvrtc):
    turn = dev.program("turn", SOURCE)
    turn.accesses = ("w", "r")
    more = turn.with_local_memory(256)
    assert more.accesses == ("w", "r") and more.signature == turn.signature
