"""Random lives of buffers: views, exports, shared handles, deallocation in any order, against what must hold."""

import gc

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from memory_devices import FarDevice, HostDevice, opened

from hcq import Buffer, Device, dtypes, memory_stats

SIZES = (64, 100, 4096)
U8 = dtypes.uint8


class Lives(RuleBasedStateMachine):
    """Whoever holds memory reads what was written there; when nobody does, it is free."""

    factory = HostDevice

    def __init__(self):
        super().__init__()
        self.opened = opened(self.factory)
        self.name = self.opened.__enter__()
        self.allocator = Device[self.name].allocator
        self.roots = []  # [buffer, mark]: allocated, alone with their memory's contents
        self.readers = []  # (object, mark): views, exports, buffers over the same handle
        self.marks = 0

    def teardown(self):
        self.roots.clear()
        self.readers.clear()
        gc.collect()
        assert memory_stats(self.name)[:2] == (0, 0)
        assert self.allocator.live_bytes == 0
        self.opened.__exit__(None, None, None)

    @rule(size=st.sampled_from(SIZES))
    def make(self, size):
        self.marks = self.marks % 250 + 1
        self.roots.append((Buffer(self.name, size, U8, initial_value=bytes([self.marks]) * size), self.marks))

    @precondition(lambda self: self.roots)
    @rule(choice=st.integers(0, 99), at=st.integers(0, 32), count=st.integers(1, 32))
    def take_a_view(self, choice, at, count):
        root, mark = self.roots[choice % len(self.roots)]
        self.readers.append((root.view(count, U8, at), mark))

    @precondition(lambda self: self.roots)
    @rule(choice=st.integers(0, 99))
    def share_the_handle(self, choice):
        root, mark = self.roots[choice % len(self.roots)]
        self.readers.append((Buffer(self.name, root.size, U8, opaque=root._buf), mark))

    @precondition(lambda self: self.roots)
    @rule(choice=st.integers(0, 99), how=st.sampled_from([memoryview, np.asarray, np.from_dlpack]))
    def export(self, choice, how):
        root, mark = self.roots[choice % len(self.roots)]
        if self.factory is HostDevice:
            self.readers.append((how(root.view(16, U8, 8)), mark))

    @precondition(lambda self: self.roots)
    @rule(choice=st.integers(0, 99))
    def rewrite(self, choice):
        root, mark = self.roots[choice % len(self.roots)]
        root.copyin(bytes([mark]) * root.size)

    @precondition(lambda self: self.roots)
    @rule(choice=st.integers(0, 99))
    def drop_a_root(self, choice):
        self.roots.pop(choice % len(self.roots))

    @precondition(lambda self: self.roots)
    @rule(choice=st.integers(0, 99))
    def deallocate_a_root(self, choice):
        root, _ = self.roots.pop(choice % len(self.roots))
        root.deallocate()
        gone = [reader for reader, _ in self.readers if isinstance(reader, Buffer) and reader._base is root]
        assert not any(view.is_allocated() for view in gone)
        self.readers = [pair for pair in self.readers if not any(pair[0] is view for view in gone)]

    @precondition(lambda self: self.readers)
    @rule(choice=st.integers(0, 99))
    def drop_a_reader(self, choice):
        self.readers.pop(choice % len(self.readers))

    @rule()
    def empty_the_cache(self):
        self.allocator.free_cache()

    @invariant()
    def everybody_reads_what_was_written(self):
        for holder, mark in [*self.roots, *self.readers]:
            data = bytes(holder.as_buffer()) if isinstance(holder, Buffer) else bytes(memoryview(holder).cast("B"))
            assert data == bytes([mark]) * len(data)

    @invariant()
    def counters_count_live_roots(self):
        roots = {id(root): root for root, _ in self.roots}
        for reader, _ in self.readers:
            if isinstance(reader, Buffer) and reader._base is not None:
                roots[id(reader.base)] = reader.base
        assert memory_stats(self.name)[:2] == (sum(root.nbytes for root in roots.values()), len(roots))


class FarLives(Lives):
    factory = FarDevice


for machine in (Lives, FarLives):
    machine.TestCase.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("machine", [Lives, FarLives])
def test_memory_lives_exactly_as_long_as_somebody_holds_it(machine):
    machine.TestCase("runTest").runTest()
