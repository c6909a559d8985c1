"""Graphs whose inputs, values and sizes change at random do what the same commands do one after the other."""

import threading
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hcq
from hcq import Device, dtypes
from hcq.errors import LaunchError
from hcq.graph import CopyItem, LaunchItem, ListGraph

BUFFERS, WORDS = 6, 64
KERNELS = """
#include <hcq.h>
void add(int *o, const int *a, const int *b, int n) { for (int i = 0; i < n; i++) o[i] = a[i] + b[i]; }
void fill(int *o, int n, int v) { for (int i = 0; i < n; i++) o[i] = v; }
void more(int *o, int n, int v) { for (int i = 0; i < n; i++) o[i] = o[i] * 3 + v; }
HCQ_KERNEL void count(int *o, int v) { o[hcq_group_id(0)] = (int)hcq_num_groups(0) + v; }
"""

examples = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
seeds = given(st.integers(0, 2**32 - 1))


@pytest.fixture(scope="module")
def kernels():
    library = Device["CLANG"].compiler.compile_cached(KERNELS)
    return {
        name: {kernel: Device[name].runtime(kernel, library) for kernel in ("add", "fill", "more", "count")}
        for name in ("CLANG", "CLANG:1", "LLVM")
    }


class Operation:
    """One command over buffers that are known by number, and what it does to arrays."""

    def __init__(self, random, homes):
        self.kind = random.choice(["fill", "more", "add", "copy", "count"])
        self.words = random.randint(1, 20)
        self.dest, self.at = random.randrange(BUFFERS), random.randint(0, WORDS - self.words)
        near = [number for number in range(BUFFERS) if homes[number] == homes[self.dest]]
        self.sources = [random.choice(near), random.choice(near)]
        if self.kind == "copy":
            self.sources = [random.randrange(BUFFERS)]
        # What an addition reads where it writes, it reads in the same place.
        self.offsets = [
            self.at if self.kind == "add" and source == self.dest else random.randint(0, WORDS - self.words)
            for source in self.sources
        ]
        self.value = random.randint(0, 99)

    def bufs(self, bufs):
        """The views it takes: where it writes, then what it reads."""
        places = [(self.dest, self.at)]
        if self.kind in ("add", "copy"):
            places += list(zip(self.sources, self.offsets, strict=True))
        return [bufs[number].view(self.words, dtypes.int32, 4 * at).ensure_allocated() for number, at in places]

    def vals(self, value):
        return {"add": (self.words,), "count": (value,)}.get(self.kind, (self.words, value))

    @property
    def size(self):
        return (self.words, 1, 1) if self.kind == "count" else (1, 1, 1)

    def item(self, bufs, kernels, value):
        """The same for a ListGraph."""
        if self.kind == "copy":
            return CopyItem(*self.bufs(bufs))
        return LaunchItem(kernels[self.kind], self.bufs(bufs), global_size=self.size, vals=self.vals(value))

    def record(self, bufs, kernels):
        if self.kind == "copy":
            hcq.copy(*self.bufs(bufs))
        else:
            kernels[self.kind](*self.bufs(bufs), global_size=self.size, vals=self.vals(self.value))

    def run(self, arrays):
        at, sources = slice(self.at, self.at + self.words), [arrays[number] for number in self.sources]
        read = [
            source[offset : offset + self.words].copy() for source, offset in zip(sources, self.offsets, strict=False)
        ]
        out = arrays[self.dest][at]
        with np.errstate(over="ignore"):
            if self.kind == "add":
                out[:] = read[0] + read[1]
            elif self.kind == "copy":
                out[:] = read[0]
            elif self.kind == "more":
                out[:] = out * 3 + self.value
            else:
                out[:] = self.value + (self.words if self.kind == "count" else 0)

    def torn(self, bufs):
        """Whether an addition would read what it writes, elsewhere: then it depends on the kernel."""
        if self.kind != "add":
            return False
        here = bufs[self.dest]._buf.va_addr + 4 * self.at
        there = [bufs[number]._buf.va_addr + 4 * at for number, at in zip(self.sources, self.offsets, strict=True)]
        return any(at != here and abs(at - here) < 4 * self.words for at in there)


class Inputs:
    """What the inputs are now, as buffers and as arrays, and what else they may become: views that overlap."""

    def __init__(self, random, homes):
        self.random, self.homes = random, homes
        self.first = [
            (hcq.array(start, device=home), start.copy())
            for home, start in zip(
                homes, np.arange(BUFFERS * WORDS, dtype=np.int32).reshape(BUFFERS, WORDS), strict=True
            )
        ]
        self.roots = {home: (hcq.zeros(4 * WORDS, dtypes.int32, home), np.zeros(4 * WORDS, np.int32)) for home in homes}
        self.now = list(self.first)

    @property
    def bufs(self):
        return [buf for buf, _ in self.now]

    @property
    def arrays(self):
        return [array for _, array in self.now]

    def other(self, number):
        if self.random.random() < 0.3:
            return self.first[number]
        at = self.random.randint(0, 3 * WORDS)
        buf, array = self.roots[self.homes[number]]
        return buf.view(WORDS, dtypes.int32, 4 * at).ensure_allocated(), array[at : at + WORDS]

    def change(self, operations):
        """Replace some; which and with what. All are as captured where the result would depend on the kernel."""
        chosen = {number: self.other(number) for number in range(BUFFERS) if self.random.random() < 0.5}
        now = [chosen.get(number, known) for number, known in enumerate(self.now)]
        if any(operation.torn([buf for buf, _ in now]) for operation in operations):
            chosen = dict(enumerate(self.first))
            now = list(self.first)
        self.now = now
        return {number: buf for number, (buf, _) in chosen.items()}

    def check(self):
        for buf, array in (*self.now, *self.first, *self.roots.values()):
            assert buf.numpy().tolist() == array.tolist()


def named(chosen):
    return {f"b{number}": buf for number, buf in chosen.items()}


def mistake(random, inputs):
    """Arguments of a replay that nothing comes of."""
    small = inputs.first[0][0].view(WORDS - 1, dtypes.int32, 0).ensure_allocated()
    good = named(dict(enumerate(inputs.bufs)))
    return random.choice(
        [
            {**good, "nobody": inputs.bufs[0]},
            {**good, "b1": small} if inputs.homes[1] == inputs.homes[0] else {"b0": None},
            {**named({number: inputs.other(number)[0] for number in range(1, 4)}), "b0": 5},
            {**named({number: inputs.other(number)[0] for number in range(1, 4)}), "vals": {"nobody": 3}},
            {"vals": {"v": 7, (10**6, 0): 1}},
            {"vals": {"v": 2**40}},
            {"sizes": {"count": (1, 2)}},
            {"sizes": {"fill": (3, 1, 1)}},
            {"vals": {"v": 2}, "sizes": {10**6: (1, 1, 1)}},
        ]
    )


def replayed(operations, inputs):
    for operation in operations:
        operation.run(inputs.arrays)


def run(seed, homes, kernels, slow=False):
    random = Random(seed)
    homes = [random.choice(homes) for _ in range(BUFFERS)]
    operations = [Operation(random, homes) for _ in range(random.choice([3, 12, 40, 120]))]
    inputs = Inputs(random, homes)
    with hcq.capture(inputs=named(dict(enumerate(inputs.bufs)))) as g:
        for operation in operations:
            operation.record(inputs.bufs, kernels[homes[operation.dest]])
    if slow:
        g._take = lambda *_: None  # as if every call were out of the ordinary
    numbered = len(g.nodes) == len(operations)  # else some copies became two
    valued = [index for index, operation in enumerate(operations) if operation.kind in ("fill", "more", "count")]
    for _ in range(8):
        if random.random() < 0.3:
            with pytest.raises((TypeError, ValueError, LaunchError)):
                g.replay(**mistake(random, inputs))
        vals = {}
        if random.random() < 0.3 and valued:
            vals["v"] = random.randint(0, 99)
            for index in valued:
                operations[index].value = vals["v"]
        for index in random.sample(valued, min(len(valued), random.randint(0, 4))) if numbered else ():
            operations[index].value = random.randint(0, 99)
            vals[index, int(operations[index].kind != "count")] = operations[index].value
        g.replay(vals=vals, **named(inputs.change(operations)))
        replayed(operations, inputs)
        if random.random() < 0.3:
            g.replay()
            replayed(operations, inputs)
        if random.random() < 0.3:
            inputs.check()
    inputs.check()


@examples
@seeds
def test_changes_at_random_on_one_device(kernels, seed):
    run(seed, ["CLANG"], kernels)


@examples
@seeds
def test_changes_at_random_over_several_devices(kernels, seed):
    run(seed, ["CLANG", "CLANG:1", "LLVM"], kernels)


@examples
@seeds
def test_changes_out_of_the_ordinary_do_the_same(kernels, seed):
    run(seed, ["CLANG"], kernels, slow=True)


@examples
@seeds
def test_lists_with_changes_at_random(kernels, seed):
    random = Random(seed)
    homes = ["CLANG"] * BUFFERS
    operations = [Operation(random, homes) for _ in range(random.choice([3, 12, 40]))]
    inputs = Inputs(random, homes)
    variables = {name: random.randint(0, 9) for name in ("v", "n", "w")}
    how = [random.choice([3, *variables, lambda given: given["n"] * 10 + given["w"]]) for _ in operations]
    items = [
        operation.item(inputs.bufs, kernels["CLANG"], value) for operation, value in zip(operations, how, strict=True)
    ]
    graph = ListGraph(items, inputs.bufs, variables)
    for _ in range(8):
        variables = {name: random.choice([known, random.randint(0, 9)]) for name, known in variables.items()}
        for operation, value in zip(operations, how, strict=True):
            operation.value = value(variables) if callable(value) else variables.get(value, value)
        inputs.change(operations)
        used = {way for operation, way in zip(operations, how, strict=True) if operation.kind not in ("add", "copy")}
        if random.random() < 0.2 and used - {3, "v"}:
            with pytest.raises((ValueError, KeyError)):
                graph([*inputs.bufs[1:], inputs.bufs[0]], {"v": 1000})
            with pytest.raises(TypeError, match="input buffers"):
                graph(inputs.bufs[1:], variables)
        graph(inputs.bufs, variables)
        replayed(operations, inputs)
    inputs.check()


def test_threads_change_and_replay_one_graph(kernels):
    # What a replay changes and what it queues are one thing: no thread's replay writes to another's buffers.
    x = hcq.zeros(4, dtypes.int32, "CLANG")
    with hcq.capture(inputs={"x": x}) as g:
        kernels["CLANG"]["fill"](x, vals=(4, 0))
        kernels["CLANG"]["more"](x, vals=(4, 0))
    wrong = []

    def work(number):
        mine = [hcq.zeros(4, dtypes.int32, "CLANG") for _ in range(3)]
        for turn in range(300):
            value = number * 1000 + turn
            under_way = [g.replay(x=buf, vals={"v": value + index}) for index, buf in enumerate(mine)]
            under_way[-1].wait()
            wrong.extend(
                (number, turn) for index, buf in enumerate(mine) if buf.numpy().tolist() != [4 * (value + index)] * 4
            )

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not wrong


def test_sizes_that_change_the_graph_while_they_are_read(kernels):
    # Reading a size may run Python, which may change the very same graph.
    x, y = (hcq.zeros(4, dtypes.int32, "CLANG") for _ in range(2))
    with hcq.capture(inputs={"x": x, "y": y}) as g:
        kernels["CLANG"]["fill"](x, vals=(4, 1))
        kernels["CLANG"]["count"](y, global_size=(1, 1, 1), vals=(2,))
    inner = []

    class Groups:
        def __index__(self):
            if not inner:
                inner.append(g.replay(x=y, y=x, vals={"v": 5, (0, 0): 2}, sizes={1: (4, 1, 1)}))
            return 3

    for _ in range(2):  # the second time names are known
        for buf in (x, y):
            buf.fill(0)
        inner.clear()
        g.replay(x=x, y=y)
        g.replay(vals={"v": 7, (0, 1): 8}, sizes={1: ((Groups(), 1, 1), (1, 1, 1))}).wait()
        # The inner replay came first, and what it left was there for the outer.
        assert len(inner) == 1
        assert y.numpy().tolist()[:2] == [8, 8]
        assert x.numpy().tolist() == [10, 10, 10, 9]
        assert g.inputs == {"x": y, "y": x}
