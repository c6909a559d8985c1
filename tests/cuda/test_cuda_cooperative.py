"""Cooperative launches: kernels whose groups are all there at a time, so that they may wait for each other."""

import numpy as np
import pytest

import hcq
from hcq.errors import LaunchError

SOURCE = """
__device__ void meet(unsigned *word) {  // as this_grid().sync(), whose headers take seconds to compile
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    unsigned all = gridDim.x, wanted = (atomicAdd(word, 1) / all + 1) * all;
    while (*(volatile unsigned *)word < wanted) ;
    __threadfence();
  }
  __syncthreads();
}
extern "C" __global__ void turn(int *x, unsigned *word, int rounds) {
  int me = blockIdx.x * blockDim.x + threadIdx.x, last = gridDim.x * blockDim.x - 1;
  for (int r = 0; r < rounds; ++r) {
    int other = x[last - me] + 1;
    meet(word);
    x[me] = other;
    meet(word);
  }
}
extern "C" __global__ void apart(int *x) { x[blockIdx.x * blockDim.x + threadIdx.x] += 10; }
extern "C" __global__ void shared(int *x, unsigned *word) {
  extern __shared__ int tile[];
  tile[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
  meet(word);
  x[(gridDim.x - 1 - blockIdx.x) * blockDim.x + threadIdx.x] = tile[threadIdx.x];
}
"""
GROUPS = """
#include <cooperative_groups.h>
extern "C" __global__ void turn(int *x) {
  auto grid = cooperative_groups::this_grid();
  int other = x[grid.size() - 1 - grid.thread_rank()] + 1;
  grid.sync();
  x[grid.thread_rank()] = other;
}
"""
SIZES = {"global_size": (4, 1, 1), "local_size": (32, 1, 1)}


@pytest.fixture
def turn(dev, nvrtc):
    if not dev.found.facts["cooperative"]:
        pytest.skip("this device launches nothing cooperatively")
    return dev.program("turn", SOURCE).cooperative()


@pytest.fixture
def x(dev):
    return hcq.array(np.arange(128, dtype=np.int32), "CUDA")


@pytest.fixture
def word(dev):
    return hcq.zeros(1, hcq.u32, "CUDA")


def turned(rounds):
    values = np.arange(128)
    for _ in range(rounds):
        values = values[::-1] + 1
    return values


def test_groups_wait_for_each_other(dev, turn, x, word):
    assert turn.is_cooperative and turn.cooperative() is turn and not dev.program("turn", SOURCE).is_cooperative
    assert turn(x, word, vals=(5,), **SIZES, wait=True) > 0
    assert (x.numpy() == turned(5)).all()


def test_more_groups_than_run_at_a_time_are_refused_and_queue_nothing(dev, turn, x, word):
    before = dev.timeline_value
    with pytest.raises(LaunchError, match=r"turn: 1000000 groups .* at a time.* \d+ of \(1024, 1, 1\)"):
        turn(x, word, vals=(1,), global_size=(1_000_000, 1, 1), local_size=(1024, 1, 1))
    with pytest.raises(LaunchError, match="at a time"):
        turn.prepare(x, word, vals=(1,), global_size=(1_000_000, 1, 1))
    assert dev.timeline_value == before
    turn(x, word, vals=(1,), global_size=(0, 1, 1), local_size=(32, 1, 1), wait=True)


def test_it_goes_with_local_memory(dev, turn, x, word):
    for shared in (
        dev.program("shared", SOURCE).with_local_memory(128).cooperative(),
        dev.program("shared", SOURCE).cooperative().with_local_memory(128),
    ):
        assert shared.is_cooperative and shared.local_memory_bytes == 128
        shared(x, word, **SIZES)
    assert (x.numpy() == np.arange(128)).all()


def test_graphs_and_bound_queues_have_it_beside_others(dev, turn, x, word):
    apart = dev.program("apart", SOURCE)
    with hcq.capture() as graph:
        for _ in range(2):
            apart(x, **SIZES)
            turn(x, word, vals=(1,), **SIZES)
    graph.replay().wait()
    expected = ((np.arange(128) + 10)[::-1] + 1 + 10)[::-1] + 1
    assert (x.numpy() == expected).all()
    with pytest.raises(LaunchError, match="at a time"):
        graph.replay(sizes={"turn": (1_000_000, 1, 1)})
    graph.replay(sizes={"turn": (2, 1, 1)}).wait()
    queue, done = dev.hw_compute_queue_t(), dev.signal_t()
    x.copyin(np.arange(128, dtype=np.int32))
    dev.synchronize()
    for _ in range(3):
        queue.exec(turn, turn.fill_kernargs([x._buf, word._buf], (1,)), (4, 1, 1), (32, 1, 1))
    queue.signal(done, 1).bind(dev).submit(dev)
    done.wait(1)
    assert (x.numpy() == turned(3)).all()
    with pytest.raises(LaunchError, match="at a time"):
        queue.update_exec(0, (1_000_000, 1, 1))


def test_a_saved_graph_keeps_it(dev, turn, x, word, tmp_path):
    with hcq.capture() as graph:
        turn(x, word, vals=(1,), **SIZES)
    graph.save(tmp_path / "turn.hcqg", contents=True)
    from hcq.graph import saved

    run = saved.SavedGraph(tmp_path / "turn.hcqg").on("CUDA")
    run.run()
    assert (run.buffer(0).numpy() == turned(1)).all()


@pytest.mark.thorough  # the headers take NVRTC seconds
def test_cooperative_groups_of_the_toolkit_wait_for_the_grid(dev, turn, x):
    dev.program("turn", GROUPS).cooperative()(x, **SIZES)
    assert (x.numpy() == turned(1)).all()


def test_other_devices_refuse_it():
    nothing = hcq.Device["NULL"].program("nothing", "")
    with pytest.raises(LaunchError, match="cooperative"):
        nothing.cooperative()
