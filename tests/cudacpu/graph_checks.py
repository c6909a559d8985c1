"""What graphs promise. Run by test_graphs.py."""

from __future__ import annotations

import ctypes
import tempfile
import time
from pathlib import Path

import numpy as np
from driver import cuda, kernel, out, refused
from graphs import (
    BATCH_MEM_OP,
    EMPTY,
    GRAPH,
    HOST,
    HOST_FUNCTION,
    KERNEL,
    MEM_ALLOC,
    MEM_FREE,
    MEMCPY,
    MEMSET,
    STEP,
    Arguments,
    HostParams,
    KernelParams,
    MemsetParams,
    Pointer,
    UpdateResult,
    add_empty,
    add_step,
    at,
    captured,
    create,
    device_words,
    edges,
    handles,
    instantiate,
    kinds,
    nodes,
    run,
    step,
    stream,
    wait,
    words,
    write,
)

TOPOLOGY_CHANGED, NODE_TYPE_CHANGED = 2, 3


def update(executable: Pointer, graph: Pointer) -> UpdateResult:
    result = UpdateResult()
    cuda.raw.cuGraphExecUpdate_v2(executable, graph, ctypes.byref(result))
    return result


def check_nodes_run_after_those_they_depend_on():
    made, memory, on = kernel(STEP), words(), stream()
    graph = create()
    # 1; then 1 * 10 + 2 = 12, by two edges each way; then * 10 + 3
    first = add_step(graph, made, memory, 0, 1)
    left, right = add_empty(graph, first), add_empty(graph, first)
    second = add_step(graph, made, memory, 10, 2, left, right)
    third = add_step(graph, made, memory, 10, 3, second)
    assert kinds(graph) == [KERNEL, EMPTY, EMPTY, KERNEL, KERNEL]
    assert nodes(graph, cuda.cuGraphGetRootNodes) == [first.value]
    executable = instantiate(graph)
    for _ in range(3):
        run(executable, on)
        assert memory[0] == 123
    # Executables are what the graph was.
    cuda.cuGraphDestroyNode(third)
    run(executable, on)
    assert memory[0] == 123
    run(instantiate(graph), on)
    assert memory[0] == 12


def check_edges_come_and_go():
    graph = create()
    a, b, c = (add_empty(graph) for _ in range(3))
    one, two = handles(a, b), handles(b, c)
    cuda.cuGraphAddDependencies(graph, one, two, ctypes.c_size_t(2))
    assert edges(graph) == {(a.value, b.value), (b.value, c.value)}
    assert refused(cuda.cuGraphAddDependencies, graph, one, two, ctypes.c_size_t(1)).name == "CUDA_ERROR_INVALID_VALUE"
    cuda.cuGraphAddDependencies(graph, handles(c), handles(a), ctypes.c_size_t(1))
    assert refused(instantiate, graph).name == "CUDA_ERROR_INVALID_VALUE"  # a cycle
    cuda.cuGraphRemoveDependencies(graph, handles(c), handles(a), ctypes.c_size_t(1))
    call = cuda.cuGraphRemoveDependencies
    assert refused(call, graph, handles(a), handles(c), ctypes.c_size_t(1)).name == "CUDA_ERROR_INVALID_VALUE"
    instantiate(graph)
    cuda.cuGraphDestroyNode(b)
    assert edges(graph) == set() and nodes(graph) == [a.value, c.value]
    assert refused(cuda.cuGraphDestroyNode, b).name == "CUDA_ERROR_INVALID_VALUE"


def check_lists_fill_what_there_is_room_for():
    graph = create()
    made = [add_empty(graph).value for _ in range(3)]
    for room, count, found in ((2, 2, made[:2]), (3, 3, made), (5, 3, [*made, None, None])):
        array, size = (Pointer * room)(*[1] * room), ctypes.c_size_t(room)
        cuda.cuGraphGetNodes(graph, array, ctypes.byref(size))
        assert (size.value, list(array)) == (count, found)


def check_all_kinds_of_nodes_are_captured_and_replayed():
    made, on, memory, called = kernel(STEP), stream(), device_words(), []
    source = np.array([7, 8], np.uint32)
    function = HOST_FUNCTION(lambda data: called.append(data))
    with captured(on) as graph:
        cuda.cuMemsetD32Async(at(memory), ctypes.c_uint(3), ctypes.c_size_t(2), on)
        cuda.cuMemcpyAsync(at(memory, 2), at(source), ctypes.c_size_t(8), on)
        step(made, on, memory, 2, 1)
        cuda.cuLaunchHostFunc(on, function, Pointer(77))
        write(on, memory, 5, 9)
    assert kinds(graph) == [MEMSET, MEMCPY, KERNEL, HOST, BATCH_MEM_OP]
    executable = instantiate(graph)
    source[:] = 4, 5  # read when it runs, not when it was captured
    for _ in range(2):
        memory[:] = 0
        run(executable, on)
        assert memory.tolist() == [7, 3, 4, 5, 0, 9, 0, 0]
    assert called == [77, 77]


def check_parameters_are_read_and_set_in_graphs_and_in_executables():
    made, memory, on = kernel(STEP), words(), stream()
    graph = create()
    node = add_step(graph, made, memory, 0, 5)
    got = out(KernelParams, lambda to: cuda.cuGraphKernelNodeGetParams_v2(node, to))
    assert (list(got.grid), list(got.block)) == ([1, 1, 1], [1, 1, 1])
    assert ctypes.cast(got.params[2], ctypes.POINTER(ctypes.c_uint32))[0] == 5
    executable = instantiate(graph)
    other = Arguments(made, memory, 0, 6)
    cuda.cuGraphExecKernelNodeSetParams_v2(executable, node, ctypes.byref(other.params))
    run(executable, on)
    assert memory[0] == 6
    run(instantiate(graph), on)
    assert memory[0] == 5
    arguments = Arguments(made, memory, 0, 7)  # kept until the call has read what the structure points to
    cuda.cuGraphKernelNodeSetParams_v2(node, ctypes.byref(arguments.params))
    run(instantiate(graph), on)
    assert memory[0] == 7
    run(executable, on)
    assert memory[0] == 6


def check_fills_and_host_functions_by_their_own_calls():
    memory, on, called = device_words(), stream(), []
    graph, context = create(), out(Pointer, cuda.cuCtxGetCurrent)
    fill = MemsetParams(memory.ctypes.data, 0, 0xAB, 1, 8, 1)
    node = out(Pointer, cuda.cuGraphAddMemsetNode, graph, None, ctypes.c_size_t(0), ctypes.byref(fill), context)
    function = HOST_FUNCTION(lambda data: called.append(data))
    host = HostParams(function, 5)
    out(Pointer, cuda.cuGraphAddHostNode, graph, handles(node), ctypes.c_size_t(1), ctypes.byref(host))
    assert out(MemsetParams, lambda to: cuda.cuGraphMemsetNodeGetParams(node, to)).value == 0xAB
    executable = instantiate(graph)
    run(executable, on)
    assert memory.tolist()[:3] == [0xABABABAB, 0xABABABAB, 0] and called == [5]
    fill.value, fill.width = 0xCD, 4
    cuda.cuGraphExecMemsetNodeSetParams(executable, node, ctypes.byref(fill), context)
    run(executable, on)
    assert memory.tolist()[:2] == [0xCDCDCDCD, 0xABABABAB]


def check_an_executable_takes_on_the_parameters_of_a_graph_of_its_form():
    made, memory, on = kernel(STEP), words(), stream()

    def build(*steps: tuple[int, int]) -> Pointer:
        with captured(on) as graph:
            for factor, addend in steps:
                step(made, on, memory, factor, addend)
        return graph

    executable = instantiate(build((0, 1), (10, 2)))
    assert update(executable, build((0, 3), (10, 4))).result == 0
    run(executable, on)
    assert memory[0] == 34
    assert update(executable, build((0, 3))).result == TOPOLOGY_CHANGED
    with captured(on) as other:
        step(made, on, memory, 0, 1)
        write(on, memory, 0, 9)
    wrong = update(executable, other)
    assert wrong.result == NODE_TYPE_CHANGED and wrong.node == nodes(other)[1]
    forked = create()
    add_step(forked, made, memory, 0, 1)
    add_step(forked, made, memory, 0, 1)
    assert update(executable, forked).result == TOPOLOGY_CHANGED
    run(executable, on)
    assert memory[0] == 34


def check_updates_change_no_launch_that_is_on_its_way():
    made, memory, on, other = kernel(STEP), words(), stream(), stream()
    with captured(on) as graph:
        wait(on, memory, 4, 1)
        step(made, on, memory, 0, 1)
    executable = instantiate(graph)
    cuda.cuGraphLaunch(executable, on)
    new = Arguments(made, memory, 0, 2)
    cuda.cuGraphExecKernelNodeSetParams_v2(executable, Pointer(nodes(graph)[1]), ctypes.byref(new.params))
    write(other, memory, 4, 1)
    cuda.cuStreamSynchronize(on)
    assert memory[0] == 1
    run(executable, on)
    assert memory[0] == 2
    # Nor does destroying: what is queued owns what it does.
    memory[4] = 0
    cuda.cuGraphLaunch(executable, on)
    cuda.cuGraphExecDestroy(executable)
    cuda.cuGraphDestroy(graph)
    memory[0] = 0
    write(other, memory, 4, 1)
    cuda.cuStreamSynchronize(on)
    assert memory[0] == 2


def check_launches_of_one_executable_follow_each_other_on_all_streams():
    made, memory, one, two = kernel(STEP), words(), stream(), stream()
    with captured(one) as graph:
        wait(one, memory, 4, 1)
        step(made, one, memory, 1, 1)
        write(one, memory, 4, 0)
    executable = instantiate(graph)
    for on in (one, two, one, two):
        cuda.cuGraphLaunch(executable, on)
    for count in range(1, 5):
        memory[4] = 1
        deadline = time.monotonic() + 30
        while memory[4] and time.monotonic() < deadline:
            time.sleep(0.001)
        assert memory[0] == count
    for on in (one, two):
        cuda.cuStreamSynchronize(on)


def check_a_branch_that_waits_does_not_hold_up_the_other():
    memory, on = words(), stream()
    from graphs import event

    other, forked, joined = stream(), event(), event()
    with captured(on) as graph:
        cuda.cuEventRecord(forked, on)
        cuda.cuStreamWaitEvent(other, forked, 0)
        wait(on, memory, 0, 1)
        write(other, memory, 0, 1)
        cuda.cuEventRecord(joined, other)
        cuda.cuStreamWaitEvent(on, joined, 0)
        write(on, memory, 1, 1)
    run(instantiate(graph), on)
    assert memory.tolist()[:2] == [1, 1]


def check_nodes_of_an_executable_can_be_turned_off():
    made, memory, on = kernel(STEP), words(), stream()
    graph = create()
    first = add_step(graph, made, memory, 0, 1)
    second = add_step(graph, made, memory, 10, 2, first)
    add_step(graph, made, memory, 10, 3, second)
    executable = instantiate(graph)
    cuda.cuGraphNodeSetEnabled(executable, second, 0)
    assert not out(ctypes.c_uint, lambda to: cuda.cuGraphNodeGetEnabled(executable, second, to)).value
    run(executable, on)
    assert memory[0] == 13
    cuda.cuGraphNodeSetEnabled(executable, second, 1)
    run(executable, on)
    assert memory[0] == 123


def check_child_graphs_are_copies_and_clones_know_their_originals():
    made, memory, on = kernel(STEP), words(), stream()
    inner = create()
    node = add_step(inner, made, memory, 10, 2)
    outer = create()
    first = add_step(outer, made, memory, 0, 1)
    child = out(Pointer, cuda.cuGraphAddChildGraphNode, outer, handles(first), ctypes.c_size_t(1), inner)
    add_step(outer, made, memory, 10, 3, child)
    cuda.cuGraphDestroyNode(node)
    assert kinds(outer) == [KERNEL, GRAPH, KERNEL]
    run(instantiate(outer), on)
    assert memory[0] == 123
    copy = out(Pointer, cuda.cuGraphClone, outer)
    found = out(Pointer, cuda.cuGraphNodeFindInClone, child, copy)
    assert found.value == nodes(copy)[1]
    nested = out(Pointer, lambda to: cuda.cuGraphChildGraphNodeGetGraph(found, to))
    assert kinds(nested) == [KERNEL]
    executable = instantiate(copy)
    cuda.cuGraphDestroy(outer)
    new = Arguments(made, memory, 10, 5)
    cuda.cuGraphExecKernelNodeSetParams_v2(executable, Pointer(nodes(nested)[0]), ctypes.byref(new.params))
    run(executable, on)
    assert memory[0] == 153
    for bad in (outer, copy.value + 8, 0):
        assert refused(cuda.cuGraphDestroy, bad).name == "CUDA_ERROR_INVALID_VALUE"
    assert refused(cuda.cuGraphDestroy, nested).name == "CUDA_ERROR_INVALID_VALUE"  # its node's


def check_executables_of_child_graphs_are_updated():
    made, memory, on = kernel(STEP), words(), stream()

    def inner(addend: int) -> Pointer:
        graph = create()
        add_step(graph, made, memory, 10, addend)
        return graph

    def outer(addend: int) -> tuple[Pointer, Pointer]:
        graph = create()
        first = add_step(graph, made, memory, 0, 1)
        child = out(Pointer, cuda.cuGraphAddChildGraphNode, graph, handles(first), ctypes.c_size_t(1), inner(addend))
        return graph, child

    graph, child = outer(2)
    executable = instantiate(graph)
    cuda.cuGraphExecChildGraphNodeSetParams(executable, child, inner(4))
    run(executable, on)
    assert memory[0] == 14
    assert update(executable, outer(5)[0]).result == 0
    run(executable, on)
    assert memory[0] == 15
    assert refused(cuda.cuGraphExecChildGraphNodeSetParams, executable, child, create()).name == (
        "CUDA_ERROR_INVALID_VALUE"
    )


class Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class AllocParams(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", Location),
        ("rest", ctypes.c_char * 72),
        ("access", Pointer),
        ("accesses", ctypes.c_size_t),
        ("bytes", ctypes.c_size_t),
        ("address", ctypes.c_uint64),
    )


def add_alloc(graph: Pointer, size: int) -> tuple[Pointer, int]:
    params = AllocParams(1, 0, Location(1, 0), b"", None, 0, size, 0)
    node = out(Pointer, cuda.cuGraphAddMemAllocNode, graph, None, ctypes.c_size_t(0), ctypes.byref(params))
    return node, params.address


def add_free(graph: Pointer, address: int, *after: Pointer) -> Pointer:
    last = (handles(*after), ctypes.c_size_t(len(after)), ctypes.c_uint64(address))
    return out(Pointer, cuda.cuGraphAddMemFreeNode, graph, *last)


def used() -> int:
    return int(out(ctypes.c_uint64, lambda to: cuda.cuDeviceGetGraphMemAttribute(0, 0, to)).value)


def check_graphs_allocate_and_free():
    on, before = stream(), used()
    graph = create()
    address = add_alloc(graph, 4096)[1]
    assert address and used() >= before + 4096
    executable = instantiate(graph)
    assert refused(instantiate, graph).name == "CUDA_ERROR_INVALID_VALUE"  # one at a time
    assert refused(cuda.cuGraphClone, ctypes.byref(Pointer()), graph).name == "CUDA_ERROR_NOT_SUPPORTED"
    run(executable, on)
    cuda.cuMemsetD8_v2(ctypes.c_uint64(address), ctypes.c_ubyte(1), ctypes.c_size_t(4096))
    assert refused(cuda.cuGraphLaunch, executable, on).name == "CUDA_ERROR_INVALID_VALUE"  # it is not free
    cuda.cuMemFree_v2(ctypes.c_uint64(address))
    assert refused(cuda.cuMemFree_v2, ctypes.c_uint64(address)).name == "CUDA_ERROR_INVALID_VALUE"
    run(executable, on)
    other = create()
    add_free(other, address)
    frees = instantiate(other)
    run(frees, on)
    assert refused(cuda.cuGraphLaunch, frees, on).name == "CUDA_ERROR_INVALID_VALUE"
    run(executable, on)
    assert refused(add_free, graph, address).name == "CUDA_ERROR_INVALID_VALUE"  # another frees it
    for each in (executable, frees):
        cuda.cuGraphExecDestroy(each)
    for each in (graph, other):
        cuda.cuGraphDestroy(each)
    # The last launch's allocation outlives the graph.
    cuda.cuMemsetD8_v2(ctypes.c_uint64(address), ctypes.c_ubyte(1), ctypes.c_size_t(4096))
    cuda.cuMemFree_v2(ctypes.c_uint64(address))
    assert used() == before


def check_what_a_graph_frees_itself_it_allocates_again():
    on, before = stream(), used()
    graph = create()
    node, address = add_alloc(graph, 100)
    freed = add_free(graph, address, node)
    assert kinds(graph) == [MEM_ALLOC, MEM_FREE]
    assert refused(add_free, graph, address, node).name == "CUDA_ERROR_INVALID_VALUE"
    assert refused(cuda.cuGraphDestroyNode, freed).name == "CUDA_ERROR_INVALID_VALUE"
    executable = instantiate(graph)
    for _ in range(3):
        run(executable, on)
    cuda.cuGraphExecDestroy(executable)
    frees_first = 1
    unfreed = create()
    add_alloc(unfreed, 100)
    executable = instantiate(unfreed, frees_first)
    for _ in range(3):
        run(executable, on)
    cuda.cuGraphExecDestroy(executable)
    cuda.cuGraphDestroy(graph)
    assert used() >= before


def check_executables_of_a_graph_that_is_gone_count_for_no_other():
    gone = create()
    add_alloc(gone, 100)
    executable = instantiate(gone)
    cuda.cuGraphDestroy(gone)
    graphs: list[Pointer] = []
    while gone.value not in [graph.value for graph in graphs]:  # handles are given again after some while
        for graph in graphs:
            cuda.cuGraphDestroy(graph)
        graphs = [create() for _ in range(100)]
    heir = next(graph for graph in graphs if graph.value == gone.value)
    add_alloc(heir, 100)
    cuda.cuGraphExecDestroy(executable)
    executable = instantiate(heir)
    assert refused(instantiate, heir).name == "CUDA_ERROR_INVALID_VALUE"  # one at a time
    cuda.cuGraphExecDestroy(executable)
    for graph in graphs:
        cuda.cuGraphDestroy(graph)


def check_user_objects_live_as_long_as_who_refers_to_them():
    gone: list[int] = []
    destroy = HOST_FUNCTION(lambda data: gone.append(data))
    memory, on = words(), stream()

    def is_gone(data: int) -> bool:
        deadline = time.monotonic() + 30  # destructors run in a thread of the library
        while data not in gone and time.monotonic() < deadline:
            time.sleep(0.001)
        return data in gone

    with captured(on) as graph:
        wait(on, memory, 0, 1)
    make = cuda.cuUserObjectCreate
    kept = out(Pointer, make, Pointer(1), destroy, 1, 1)
    cuda.cuGraphRetainUserObject(graph, kept, 1, 1)  # moved
    executable = instantiate(graph)
    cuda.cuGraphLaunch(executable, on)
    cuda.cuGraphDestroy(graph)
    cuda.cuGraphExecDestroy(executable)
    assert not gone
    memory[0] = 1
    cuda.cuStreamSynchronize(on)
    assert is_gone(1)
    own = out(Pointer, make, Pointer(2), destroy, 2, 1)
    cuda.cuUserObjectRetain(own, 1)
    cuda.cuUserObjectRelease(own, 2)
    graph = create()
    cuda.cuGraphRetainUserObject(graph, own, 2, 0)
    cuda.cuUserObjectRelease(own, 1)
    cuda.cuGraphReleaseUserObject(graph, own, 1)
    assert refused(cuda.cuGraphReleaseUserObject, graph, own, 2).name == "CUDA_ERROR_INVALID_VALUE"
    assert gone == [1]
    cuda.cuGraphDestroy(graph)
    assert is_gone(2)


def check_conditional_nodes_are_refused_by_name():
    handle, graph = ctypes.c_uint64(), create()
    call = cuda.cuGraphConditionalHandleCreate
    assert refused(call, ctypes.byref(handle), graph, None, 0, 0).name == "CUDA_ERROR_NOT_SUPPORTED"


def check_a_kernel_that_fails_ends_the_launch_and_the_context():
    fails = kernel(".visible .entry k() { trap; ret; }")
    memory, on = words(), stream()
    with captured(on) as graph:
        cuda.cuLaunchKernel(fails, 1, 1, 1, 1, 1, 1, 0, on, None, None)
        write(on, memory, 0, 1)
    executable = instantiate(graph)
    cuda.cuGraphLaunch(executable, on)
    assert refused(cuda.cuStreamSynchronize, on).name == "CUDA_ERROR_LAUNCH_FAILED"
    assert refused(stream).name == "CUDA_ERROR_LAUNCH_FAILED"
    assert memory[0] == 0


def check_a_picture_shows_nodes_edges_and_what_is_asked_for():
    made, memory, on = kernel(STEP), device_words(), stream()
    with captured(on) as inner:
        step(made, on, memory, 1, 1)
    with captured(on) as graph:
        cuda.cuMemsetD32Async(at(memory), ctypes.c_uint(3), ctypes.c_size_t(2), on)
        cuda.cuGraphLaunch(instantiate(inner), on)
    verbose = 1
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/graph.dot"
        cuda.cuGraphDebugDotPrint(graph, path.encode(), 0)
        plain = Path(path).read_text()
        cuda.cuGraphDebugDotPrint(graph, path.encode(), verbose)
        full = Path(path).read_text()
        assert refused(cuda.cuGraphDebugDotPrint, graph, f"{folder}/no/file".encode(), 0).code == 304
    assert plain.startswith("digraph") and plain.count(" -> ") == 1
    assert all(part in plain for part in ("MEMSET", "GRAPH", "KERNEL\\nk")) and "block 1 x 1" not in plain
    assert "block 1 x 1" in full and f"to {memory.ctypes.data:#x}" in full


def check_allocations_of_a_captured_stream_are_the_graphs():
    on, memory = stream(), device_words()
    with captured(on) as graph:
        address = out(ctypes.c_uint64, cuda.cuMemAllocAsync, ctypes.c_size_t(64), on)
        cuda.cuMemsetD32Async(address, ctypes.c_uint(7), ctypes.c_size_t(16), on)
        cuda.cuMemcpyAsync(at(memory), address, ctypes.c_size_t(32), on)
        cuda.cuMemFreeAsync(address, on)
    assert kinds(graph) == [MEM_ALLOC, MEMSET, MEMCPY, MEM_FREE]
    executable = instantiate(graph)
    for _ in range(2):
        memory[:] = 0
        run(executable, on)
        assert (memory == 7).all()
    other = out(ctypes.c_uint64, cuda.cuMemAllocAsync, ctypes.c_size_t(64), on)
    with captured(on):
        assert refused(cuda.cuMemFreeAsync, other, on).name == "CUDA_ERROR_INVALID_VALUE"
    cuda.cuMemFreeAsync(other, on)
    # What a launch left allocated is freed in the order of a stream.
    with captured(on) as kept:
        address = out(ctypes.c_uint64, cuda.cuMemAllocAsync, ctypes.c_size_t(64), on)
    executable = instantiate(kept)
    for _ in range(2):
        cuda.cuGraphLaunch(executable, on)
        cuda.cuMemsetD32Async(address, ctypes.c_uint(1), ctypes.c_size_t(16), on)
        cuda.cuMemFreeAsync(address, on)
    cuda.cuStreamSynchronize(on)
