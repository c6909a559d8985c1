"""Devices that the tests of memory open: over pooled host memory, over memory the host can't reach, with queues."""

import contextlib
import itertools

from hcq import Compiled, Device
from hcq.runtime.allocator import HostAllocator, LRUAllocator

_numbers = itertools.count()


class HostDevice(Compiled):
    """Memory from the pool, nothing queued."""

    def __init__(self, name):
        super().__init__(name, HostAllocator(self))


class Handle:
    """Memory that only the driver's copies reach."""

    def __init__(self, data, start=0, size=None):
        self.data, self.start, self.size = data, start, len(data) if size is None else size


class FarAllocator(LRUAllocator):
    """Keeps a log of what the driver was asked for; `room` bytes are all there is."""

    def __init__(self, device):
        super().__init__(device)
        self.log = []
        self.room = None
        self.used = 0

    def _alloc(self, size, options):
        self.log.append(("alloc", size, options))
        if self.room is not None and self.used + size > self.room:
            raise MemoryError(f"no room for {size}")
        self.used += size
        return Handle(bytearray(size))

    def _free(self, opaque, options):
        self.log.append(("free", opaque.size, options))
        self.used -= opaque.size

    def copyin(self, dest, src):
        assert isinstance(src, memoryview) and src.format == "B" and src.ndim == 1
        dest.data[dest.start : dest.start + dest.size] = src

    def copyout(self, dest, src):
        dest[:] = src.data[src.start : src.start + src.size]

    def offset(self, buf, size, offset):
        return Handle(buf.data, buf.start + offset, size)


class FarDevice(Compiled):
    def __init__(self, name):
        super().__init__(name, FarAllocator(self))


class QueuedDevice(FarDevice):
    """A device whose work is over when the test says so: `queue()` adds work, `finish()` ends it all."""

    def __init__(self, name):
        super().__init__(name)
        self.submitted = self.done = 0

    def queue(self):
        self.submitted += 1

    def finish(self):
        self.done = self.submitted

    def position(self):
        return None if self.done == self.submitted else self.submitted

    def passed(self, position):
        return self.done >= position


def kinds(allocator):
    """What a FarAllocator's driver was asked for, in order: "alloc" and "free"."""
    return [entry[0] for entry in allocator.log]


@contextlib.contextmanager
def opened(factory):
    """A name under which `factory` is registered, and opened at first use; closed and forgotten in the end."""
    name = f"TEST{next(_numbers)}"
    Device.register(name, factory)
    try:
        yield name
    finally:
        for open_name in Device.opened:
            if open_name.partition(":")[0] == name:
                Device.close(open_name)
        Device.unregister(name)
