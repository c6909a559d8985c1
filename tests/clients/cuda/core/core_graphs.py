"""Graphs: by stream capture and node by node, updated, embedded, with host functions and memory of their own."""

from __future__ import annotations

import gc
import tempfile
import time
import weakref
from pathlib import Path

import numpy as np
from core_common import device, download, kernel, upload, view
from cuda.core import GraphMemoryResource, LaunchConfig, LegacyPinnedMemoryResource, launch
from cuda.core.graph import GraphBuilder, GraphCompleteOptions, GraphDebugPrintOptions, GraphDefinition

STEP = """
extern "C" __global__ void step(unsigned* word, unsigned factor, unsigned addend) { *word = *word * factor + addend; }
extern "C" __global__ void sum(unsigned* to, const unsigned* a, const unsigned* b) { *to = *a + *b; }
"""
ONE = LaunchConfig(grid=1, block=1)


def words(count: int = 4):
    """Page-locked words, and the host's sight of them."""
    buffer = LegacyPinnedMemoryResource().allocate(4 * count)
    array = view(buffer, np.uint32)
    array[:] = 0
    return buffer, array


def step(where, buffer, factor, addend, index=0):
    word = int(buffer.handle) + 4 * index
    launch(where, ONE, kernel(STEP, "step"), word, np.uint32(factor), np.uint32(addend))


def example_a_chain_by_capture():
    gpu = device()
    stream, (buffer, array) = gpu.create_stream(), words()
    builder = gpu.create_graph_builder().begin_building()
    for addend in (1, 2, 3):
        step(builder, buffer, 10, addend)
    graph = builder.end_building().complete()
    assert array[0] == 0
    graph.upload(stream)
    for _ in range(3):
        array[0] = 0
        graph.launch(stream)
        stream.sync()
        assert array[0] == 123
    graph.close()
    builder.close()


def example_branches_that_split_and_join():
    gpu = device()
    stream, (buffer, array) = gpu.create_stream(), words()
    first = gpu.create_graph_builder().begin_building()
    step(first, buffer, 0, 5, 0)
    left, right = first.split(2)
    assert right.is_join_required
    step(left, buffer, 0, 7, 1)
    step(right, buffer, 2, 1, 0)
    step(right, buffer, 2, 1, 0)
    joined = GraphBuilder.join(left, right)
    at = int(buffer.handle)
    launch(joined, ONE, kernel(STEP, "sum"), at + 8, at, at + 4)
    graph = joined.end_building().complete()
    graph.launch(stream)
    stream.sync()
    assert array.tolist()[:3] == [23, 7, 30]


def example_a_capture_in_a_stream_of_ones_own_and_its_modes():
    gpu = device()
    for mode in ("global", "thread_local", "relaxed"):
        stream, (buffer, array) = gpu.create_stream(), words()
        builder = stream.create_graph_builder()
        builder.begin_building(mode=mode)
        assert builder.is_building and builder.stream == stream
        step(builder, buffer, 0, 9)
        graph = builder.end_building().complete()
        assert not builder.is_building
        graph.launch(stream)
        stream.sync()
        assert array[0] == 9


def example_an_executable_is_updated():
    gpu = device()
    stream, (buffer, array) = gpu.create_stream(), words()

    def build(*addends):
        builder = gpu.create_graph_builder().begin_building()
        for addend in addends:
            step(builder, buffer, 10, addend)
        return builder.end_building()

    graph = build(1, 2).complete()
    graph.update(build(3, 4))
    graph.launch(stream)
    stream.sync()
    assert array[0] == 34
    try:
        graph.update(build(1, 2, 3))
    except Exception as error:
        assert "TOPOLOGY" in str(error).upper(), error
    else:
        raise AssertionError("a graph of another form was taken")


def example_graphs_in_graphs():
    gpu = device()
    stream, (buffer, array) = gpu.create_stream(), words()
    inner = gpu.create_graph_builder().begin_building()
    step(inner, buffer, 10, 2)
    step(inner, buffer, 10, 3)
    inner.end_building()
    outer = gpu.create_graph_builder().begin_building()
    step(outer, buffer, 0, 1)
    outer.embed(inner)
    step(outer, buffer, 10, 4)
    graph = outer.end_building().complete()
    inner.close()
    graph.launch(stream)
    stream.sync()
    assert array[0] == 1234


def example_host_functions_live_as_long_as_the_graph():
    class Callback:
        def __init__(self):
            self.calls = 0

        def __call__(self):
            self.calls += 1

    gpu = device()
    stream, (buffer, array), call = gpu.create_stream(), words(), Callback()
    builder = gpu.create_graph_builder().begin_building()
    step(builder, buffer, 1, 1)
    builder.callback(call)
    graph = builder.end_building().complete()
    builder.close()
    gone = weakref.ref(call)
    for _ in range(3):
        graph.launch(stream)
    stream.sync()
    assert call.calls == 3 and array[0] == 3
    del call
    gc.collect()
    assert gone() is not None
    graph.close()
    deadline = time.monotonic() + 60  # what a graph owned goes in a thread of the driver
    while gone() is not None and time.monotonic() < deadline:
        time.sleep(0.001)
        gc.collect()
    assert gone() is None


def example_memory_of_a_graph():
    gpu = device()
    stream, (buffer, array) = gpu.create_stream(), words()
    pool = GraphMemoryResource(gpu)
    builder = gpu.create_graph_builder().begin_building()
    scratch = pool.allocate(4, stream=builder)
    scratch.fill(np.uint32(40), stream=builder)
    step(builder, scratch, 1, 2)
    buffer_of_one = int(buffer.handle)
    launch(builder, ONE, kernel(STEP, "sum"), buffer_of_one, int(scratch.handle), int(scratch.handle))
    scratch.close(builder)
    graph = builder.end_building().complete()
    for _ in range(2):
        array[0] = 0
        graph.launch(stream)
        stream.sync()
        assert array[0] == 84
    assert pool.attributes.reserved_mem_current > 0
    graph.close()
    builder.close()
    pool.trim()


def example_node_by_node():
    gpu = device()
    stream, (buffer, array) = gpu.create_stream(), words()
    made, at = kernel(STEP, "step"), int(buffer.handle)
    definition, called = GraphDefinition(), []
    filled = definition.memset(at, np.uint32(1), 2)
    first = filled.launch(ONE, made, at, np.uint32(10), np.uint32(2))
    second = filled.launch(ONE, made, at + 4, np.uint32(10), np.uint32(3))
    both = definition.join(first, second)
    added = both.launch(ONE, kernel(STEP, "sum"), at + 8, at, at + 4)
    copied = added.memcpy(at + 12, at + 8, 4)
    copied.callback(lambda: called.append(int(array[3])))
    assert len(definition.nodes()) == 7 and len(definition.edges()) == 7
    assert set(filled.succ) == {first, second} and set(both.pred) == {first, second}
    graph = definition.instantiate()
    graph.launch(stream)
    stream.sync()
    assert array.tolist() == [12, 13, 25, 25] and called == [25]
    graph[first].update(config=ONE, kernel=made, args=(at, np.uint32(10), np.uint32(5)))
    graph[second].disable()
    graph.launch(stream)
    stream.sync()
    assert array.tolist() == [15, 1, 16, 16] and called == [25, 16]
    first.update(args=(at, np.uint32(10), np.uint32(9)))
    assert first.grid == (1, 1, 1) and first.block == (1, 1, 1)
    other = definition.instantiate()
    other.launch(stream)
    stream.sync()
    assert array[0] == 19
    text = (copied.dst, copied.src, copied.size, filled.width, filled.value)
    assert text == (at + 12, at + 8, 4, 2, 1)


def example_allocations_node_by_node():
    gpu = device()
    stream, (buffer, array) = gpu.create_stream(), words()
    definition, at = GraphDefinition(), int(buffer.handle)
    memory = definition.allocate(4096)
    filled = memory.memset(memory.dptr, np.uint8(7), 4096)
    copied = filled.memcpy(at, memory.dptr, 4)
    copied.deallocate(memory.dptr)
    assert memory.bytesize == 4096 and memory.device_id == 0
    graph = definition.instantiate()
    for _ in range(3):
        array[:] = 0
        graph.launch(stream)
        stream.sync()
        assert array[0] == 0x07070707
    kept = GraphDefinition()
    kept.allocate(4096)
    graph = kept.instantiate(options=GraphCompleteOptions(auto_free_on_launch=True))
    for _ in range(3):
        graph.launch(stream)
    stream.sync()


def example_events_in_graphs():
    gpu = device()
    stream, other, (buffer, array) = gpu.create_stream(), gpu.create_stream(), words()
    made, at = kernel(STEP, "step"), int(buffer.handle)
    done = gpu.create_event()
    writes, waits = GraphDefinition(), GraphDefinition()
    writes.launch(ONE, made, at, np.uint32(0), np.uint32(6)).record(done)
    waits.wait(done).launch(ONE, made, at, np.uint32(7), np.uint32(0))
    first, second = writes.instantiate(), waits.instantiate()
    first.launch(stream)
    done.sync()
    second.launch(other)
    other.sync()
    assert array[0] == 42


def example_a_picture():
    gpu = device()
    buffer, _ = words()
    builder = gpu.create_graph_builder().begin_building()
    step(builder, buffer, 1, 1)
    step(builder, buffer, 1, 1)
    builder.end_building()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.dot"
        builder.debug_dot_print(str(path), options=GraphDebugPrintOptions(kernel_node_params=True))
        text = path.read_text()
    assert "step" in text and " -> " in text and text.startswith("digraph")


def example_graphs_of_copies_and_kernels_on_device_memory():
    gpu = device()
    stream = gpu.create_stream()
    data = upload(np.arange(4, dtype=np.uint32), stream)
    staging = LegacyPinnedMemoryResource().allocate(16)
    view(staging, np.uint32)[:] = 5
    builder = gpu.create_graph_builder().begin_building()
    data.copy_from(staging, stream=builder)
    step(builder, data, 2, 1, 3)
    data.copy_to(staging, stream=builder)
    graph = builder.end_building().complete()
    graph.launch(stream)
    stream.sync()
    assert view(staging, np.uint32).tolist() == [5, 5, 5, 11]
    graph.launch(stream)
    assert download(data, np.uint32, stream).tolist() == [5, 5, 5, 23]


def example_conditions_are_refused():
    gpu = device()
    builder = gpu.create_graph_builder().begin_building()
    try:
        builder.create_condition(1)
    except Exception as error:
        assert "NOT_SUPPORTED" in str(error), error
    else:
        raise AssertionError("a condition was made")
    builder.end_building()
