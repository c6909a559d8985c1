"""Graphs, captures and streams by ctypes, for the checks of the driver on the CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from driver import cuda, out

GLOBAL, THREAD_LOCAL, RELAXED = range(3)
KERNEL, MEMCPY, MEMSET, HOST, GRAPH, EMPTY, WAIT_EVENT, EVENT_RECORD = range(8)
MEM_ALLOC, MEM_FREE, BATCH_MEM_OP, CONDITIONAL = range(10, 14)
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
Pointer = ctypes.c_void_p

# word[0] = word[0] * factor + addend, once.
STEP = """
.visible .entry k(.param .u64 at, .param .u32 factor, .param .u32 addend) {
  .reg .b32 %r<5>; .reg .b64 %d<2>;
  ld.param.u64 %d1, [at];
  ld.param.u32 %r1, [factor];
  ld.param.u32 %r2, [addend];
  ld.global.u32 %r3, [%d1];
  mad.lo.u32 %r4, %r3, %r1, %r2;
  st.global.u32 [%d1], %r4;
  ret;
}
"""


def stream(flags: int = 1) -> Pointer:
    """A non-blocking stream unless `flags` is 0."""
    return out(Pointer, cuda.cuStreamCreate, flags)


def event(flags: int = 0) -> Pointer:
    return out(Pointer, cuda.cuEventCreate, flags)


def words(count: int = 8) -> np.ndarray:
    return np.zeros(count, np.uint32)


def device_words(count: int = 8) -> np.ndarray:
    """Device memory, which the host can look at; freed with its context."""
    address = out(ctypes.c_uint64, cuda.cuMemAlloc_v2, ctypes.c_size_t(count * 4)).value
    array = np.ctypeslib.as_array((ctypes.c_uint32 * count).from_address(address))
    array[:] = 0
    return array


def at(array: np.ndarray, index: int = 0) -> ctypes.c_uint64:
    return ctypes.c_uint64(array.ctypes.data + index * array.itemsize)


def write(on: Pointer | None, array: np.ndarray, index: int, value: int) -> None:
    cuda.cuStreamWriteValue32_v2(on, at(array, index), ctypes.c_uint32(value), 0)


def wait(on: Pointer | None, array: np.ndarray, index: int, value: int, how: int = 1) -> None:
    cuda.cuStreamWaitValue32_v2(on, at(array, index), ctypes.c_uint32(value), how)


def step(made: Pointer, on: Pointer | None, array: np.ndarray, factor: int, addend: int, index: int = 0) -> None:
    """Launches STEP's kernel."""
    values = [at(array, index), ctypes.c_uint32(factor), ctypes.c_uint32(addend)]
    pointers = (Pointer * 3)(*map(ctypes.addressof, values))
    cuda.cuLaunchKernel(made, 1, 1, 1, 1, 1, 1, 0, on, pointers, None)


def begin(on: Pointer, mode: int = GLOBAL) -> None:
    cuda.cuStreamBeginCapture_v2(on, mode)


def end(on: Pointer) -> Pointer:
    return out(Pointer, lambda graph: cuda.cuStreamEndCapture(on, graph))


@contextmanager
def captured(on: Pointer, mode: int = RELAXED) -> Iterator[Pointer]:
    """Captures what is done inside; the handle is the graph's afterwards."""
    graph = Pointer()
    begin(on, mode)
    yield graph
    graph.value = end(on).value


def status(on: Pointer) -> int:
    return int(out(ctypes.c_int, lambda to: cuda.cuStreamIsCapturing(on, to)).value)


def instantiate(graph: Pointer, flags: int = 0) -> Pointer:
    return out(Pointer, lambda to: cuda.cuGraphInstantiateWithFlags(to, graph, ctypes.c_ulonglong(flags)))


def run(executable: Pointer, on: Pointer) -> None:
    cuda.cuGraphLaunch(executable, on)
    cuda.cuStreamSynchronize(on)


def handles(*nodes: Pointer) -> Any:
    return (Pointer * len(nodes))(*[node.value for node in nodes])


def nodes(graph: Pointer, call: Any = None) -> list[int]:
    call = call or cuda.cuGraphGetNodes
    count = ctypes.c_size_t()
    call(graph, None, ctypes.byref(count))
    found = (Pointer * count.value)()
    call(graph, found, ctypes.byref(count))
    return [found[i] for i in range(count.value)]


def edges(graph: Pointer) -> set[tuple[int, int]]:
    count = ctypes.c_size_t()
    cuda.cuGraphGetEdges_v2(graph, None, None, None, ctypes.byref(count))
    source, target = (Pointer * count.value)(), (Pointer * count.value)()
    cuda.cuGraphGetEdges_v2(graph, source, target, None, ctypes.byref(count))
    return {(source[i], target[i]) for i in range(count.value)}


def kinds(graph: Pointer) -> list[int]:
    return [out(ctypes.c_int, lambda to, n=n: cuda.cuGraphNodeGetType(Pointer(n), to)).value for n in nodes(graph)]


class KernelParams(ctypes.Structure):
    _fields_ = (
        ("func", Pointer),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("params", ctypes.POINTER(Pointer)),
        ("extra", Pointer),
        ("kern", Pointer),
        ("ctx", Pointer),
    )


class MemsetParams(ctypes.Structure):
    _fields_ = (
        ("dst", ctypes.c_uint64),
        ("pitch", ctypes.c_size_t),
        ("value", ctypes.c_uint),
        ("element", ctypes.c_uint),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    )


class HostParams(ctypes.Structure):
    _fields_ = (("fn", HOST_FUNCTION), ("data", Pointer))


class UpdateResult(ctypes.Structure):
    _fields_ = (("result", ctypes.c_int), ("node", Pointer), ("from_node", Pointer))


class Arguments:
    """STEP's parameters, kept alive with the structure that points to them."""

    def __init__(self, made: Pointer, array: np.ndarray, factor: int, addend: int, index: int = 0) -> None:
        self.values = [at(array, index), ctypes.c_uint32(factor), ctypes.c_uint32(addend)]
        self.pointers = (Pointer * 3)(*map(ctypes.addressof, self.values))
        one = (ctypes.c_uint * 3)(1, 1, 1)
        self.params = KernelParams(made.value, one, one, 0, self.pointers, None, None, None)


def create() -> Pointer:
    return out(Pointer, cuda.cuGraphCreate, 0)


def add_step(graph: Pointer, made: Pointer, array: np.ndarray, factor: int, addend: int, *after: Pointer) -> Pointer:
    """Adds a kernel node after others."""
    arguments = Arguments(made, array, factor, addend)
    params = ctypes.byref(arguments.params)
    return out(Pointer, cuda.cuGraphAddKernelNode_v2, graph, handles(*after), len(after), params)


def add_empty(graph: Pointer, *after: Pointer) -> Pointer:
    return out(Pointer, cuda.cuGraphAddEmptyNode, graph, handles(*after), len(after))
