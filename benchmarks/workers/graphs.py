"""Graphs of hcq: what replays take on the host, what a command takes on the device, what building takes."""

from __future__ import annotations

from functools import lru_cache
from itertools import repeat
from time import perf_counter
from typing import Any

import kernels
from serve import bench, expect

import hcq

I32 = hcq.dtypes.int32


def made(value: int) -> Any:
    return hcq.Buffer("CLANG", 1024, I32).allocate().copyin(bytes([value, 0, 0, 0]) * 1024)


@lru_cache
def program() -> Any:
    """c += a + b, once each."""
    return hcq.Device["CLANG"].program("add", kernels.ADD_C)


@lru_cache
def chain(nodes: int) -> tuple[Any, Any]:
    """A graph of launches that each add one to a counter, and the counter. `a` is its input."""
    prg, a, b, c = program(), made(1), made(0), made(0)
    prg(a, b, c, wait=True)
    with hcq.capture(inputs={"a": a}) as graph:
        for _ in range(nodes):
            prg(a, b, c)
    return graph, c


class Counted:
    """Looks at the counter before and after."""

    def __init__(self, counter: Any, launches: int) -> None:
        self.counter = counter
        self.launches = launches

    def read(self) -> int:
        return int.from_bytes(self.counter.as_buffer()[:4], "little")

    def __enter__(self) -> None:
        self.before = self.read()

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            expect("launches that ran", (self.read() - self.before) & 0xFFFFFFFF, self.launches & 0xFFFFFFFF)


def replays(n: int, nodes: int, change: list[Any], in_flight: int) -> float:
    """Seconds on the host for n replays, with up to `in_flight` under way."""
    graph, counter = chain(nodes)
    took, turn = 0.0, 0
    with Counted(counter, n * nodes):
        for first in range(0, n, in_flight):
            start = perf_counter()
            for _ in repeat(None, min(in_flight, n - first)):
                if change:
                    turn += 1
                    replay = graph.replay(a=change[turn & 1])
                else:
                    replay = graph.replay()
            took += perf_counter() - start
            replay.wait()
    return took


@bench
def graph_replay(n: int, nodes: int, in_flight: int = 4) -> float:
    """An unchanged replay, on the host."""
    return replays(n, nodes, [], in_flight) / n


@bench
def graph_change(n: int, nodes: int, in_flight: int = 4) -> float:
    """A replay with a new input that all of its launches use, less an unchanged one, for each argument."""
    others = [made(1), made(1)]
    changed = replays(n, nodes, others, in_flight)
    return max(changed - replays(n, nodes, [], in_flight), 0.0) / n / nodes


@bench
def graph_node(n: int, nodes: int) -> float:
    """Replay to finish, for each launch."""
    graph, counter = chain(nodes)
    with Counted(counter, n * nodes):
        start = perf_counter()
        for _ in repeat(None, n):
            replay = graph.replay()
        replay.wait()
        return (perf_counter() - start) / n / nodes


@bench
def graph_build(n: int, nodes: int) -> float:
    """Recording and building a graph."""
    prg, a, b, c = program(), made(1), made(0), made(0)
    start = perf_counter()
    for _ in repeat(None, n):
        with hcq.capture(inputs={"a": a}) as graph:
            for _ in range(nodes):
                prg(a, b, c)
    took = (perf_counter() - start) / n
    with Counted(c, nodes):
        graph.replay().wait()
    return took
