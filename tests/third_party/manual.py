"""MANUAL: a device without memory whose queues stand still until a test runs them, command by command."""

from __future__ import annotations

from collections import deque

from hcq.errors import DeviceLost
from hcq.queues.command_queue import HWComputeQueue, HWCopyQueue
from hcq.queues.device import HCQCompiled
from hcq.queues.signal import HCQSignal, PythonSignal


class Words:
    def _signal(self, signal, value):
        self.q.append(("signal", signal, value))

    def _wait(self, signal, value):
        self.q.append(("wait", signal, value))

    def _timestamp(self, signal):
        self.q.append(("timestamp", signal))

    def _submit(self, dev):
        ring = dev.rings[self.lane_name]
        if dev.refuse is not None:
            raise dev.refuse
        if len(ring) + len(self.q) > dev.room:
            return False
        ring.extend(self.q)
        dev.submits += 1
        dev.after_submit()
        return None


class ManualComputeQueue(Words, HWComputeQueue):
    def _memory_barrier(self):
        self.q.append(("barrier",))

    def _exec(self, prg, kernargs, global_size, local_size):
        self.q.append(("exec", prg, kernargs, global_size, local_size))


class ManualCopyQueue(Words, HWCopyQueue):
    def _copy(self, dest, src, nbytes):
        self.q.append(("copy", dest, src, nbytes))


class ManualDevice(HCQCompiled):
    def __init__(self, device="MANUAL", signal_t=PythonSignal, comp_queue_t=ManualComputeQueue):
        self.rings = {"COMPUTE": deque(), "COPY": deque()}
        self.ran = []  # what was run besides signals and waits
        self.room = 10_000
        self.refuse = None
        self.submits = 0
        self.signalled = []
        self.after_submit = lambda: None
        super().__init__(device, None, None, None, None, signal_t, comp_queue_t, ManualCopyQueue)

    def run(self, *lanes):
        """Run what can be run, on these lanes or all; returns whether anything was."""
        moved = False
        while sum(self.step(self.rings[lane]) for lane in lanes or self.rings):  # all of them, not up to the first
            moved = True
        return moved

    def step(self, ring):
        if not ring:
            return False
        what, *args = ring[0]
        if what == "wait":
            try:
                if not self.is_reached(*args):
                    return False
            except DeviceLost as error:
                self.drop(error, [word[1:] for word in ring if word[0] == "signal"])
                ring.clear()
                return True
        elif what == "signal":
            args[0].value = args[1]
            self.signalled.append(tuple(args))
        elif what == "timestamp":
            args[0]._set_timestamp(args[0].timestamp + 1)
        else:
            self.ran.append((what, *args))
        ring.popleft()
        return True


class NarrowComputeQueue(ManualComputeQueue):
    signal_bits = 32


class ManualStrict32(ManualDevice):
    """Its queues compare 32 bits, and refuse what has more."""

    def __init__(self, device="MANUAL"):
        super().__init__(device, comp_queue_t=NarrowComputeQueue)

    def step(self, ring):
        if ring and ring[0][0] in ("signal", "wait") and ring[0][2] >= 2**32:
            raise AssertionError(f"{ring[0]} has more than 32 bits")
        return super().step(ring)


class ManualNative(ManualDevice):
    """Its signals are the native ones, as those of a driver whose hardware writes memory."""

    def __init__(self, device="MANUAL"):
        super().__init__(device, signal_t=HCQSignal)
