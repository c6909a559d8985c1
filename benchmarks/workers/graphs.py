"""Graphs of hcq: what replays take on the host, what a command takes on the device, what building takes."""

from __future__ import annotations

from functools import lru_cache
from itertools import repeat
from time import perf_counter
from typing import Any

import kernels
from serve import bench, expect

import hcq
from hcq.graph import LaunchItem, ListGraph

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


@lru_cache
def wide() -> Any:
    """A grid kernel that takes ten buffers and ten values, and counts its launches in the first element of `c`."""
    bufs, vals = (", ".join(f"{kind}{index}" for index in range(10)) for kind in ("const int *b", "int v"))
    source = f"""#include <hcq.h>
HCQ_KERNEL void wide(int *c, {bufs}, {vals}) {{ if (hcq_group_id(0) == 0) c[0]++; }}"""
    return hcq.Device["CLANG"].program("wide", source)


class Wide:
    """A graph, or a list, of launches of `wide`, and replays of it that change what is asked for, or nothing."""

    launches = 5

    def __init__(self, form: str, what: str, count: int) -> None:
        self.counter = made(0)
        first = [made(0) for _ in range(10)]
        others = [[made(0) for _ in range(count)] + first[count:] for _ in range(2)]
        numbers = {f"v{index}": index for index in range(10)}
        arguments = [self.counter, *first]
        if form == "list":
            item = LaunchItem(wide(), arguments, vals=list(numbers))
            listed = ListGraph([item] * self.launches, first, numbers)
            moved = [numbers | {f"v{index}": 100 + turn for index in range(count)} for turn in range(2)]
            if what == "input":
                self.changed = lambda turn: listed(others[turn & 1], numbers)
            else:
                self.changed = lambda turn: listed(first, moved[turn & 1])
            self.unchanged = lambda turn: listed(first, numbers)
            return
        with hcq.capture(inputs={f"b{index}": buf for index, buf in enumerate(first)}) as graph:
            for _ in range(self.launches):
                wide()(*arguments, vals=tuple(numbers.values()))
        inputs = [{f"b{index}": bufs[index] for index in range(count)} for bufs in others]
        vals = [{f"v{index}": 100 + turn for index in range(count)} for turn in range(2)]
        sizes = [dict.fromkeys(range(count), (1 + turn, 1, 1)) for turn in range(2)]
        self.changed = {
            "input": lambda turn: graph.replay(**inputs[turn & 1]),
            "value": lambda turn: graph.replay(vals=vals[turn & 1]),
            "size": lambda turn: graph.replay(sizes=sizes[turn & 1]),
        }[what]
        self.unchanged = lambda turn: graph.replay()

    def seconds(self, n: int, replay: Any) -> float:
        """On the host, for n replays of which four are under way."""
        took = 0.0
        device = hcq.Device["CLANG"]
        with Counted(self.counter, n * self.launches):
            for first in range(0, n, 4):
                start = perf_counter()
                for turn in range(first, min(first + 4, n)):
                    replay(turn)
                took += perf_counter() - start
                device.synchronize()
        return took


@lru_cache
def wide_graph(form: str, what: str, count: int) -> Wide:
    graph = Wide(form, what, count)
    for turn in range(4):
        graph.changed(turn)
    return graph


@bench
def graph_changes(n: int, form: str, what: str, count: int) -> float:
    """A replay with so many new inputs, values or sizes, less an unchanged one."""
    graph = wide_graph(form, what, count)
    changed = graph.seconds(n, graph.changed)
    return max(changed - graph.seconds(n, graph.unchanged), 0.0) / n


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
