"""Breakages of the timeline, of synchronize, and of what an opened device has."""

from __future__ import annotations

import mmap
import time
from typing import Any
from unittest.mock import patch

import hcq
from hcq.drivers.null.device import NullDevice
from hcq.drivers.null.queue import NullComputeQueue
from hcq.errors import SignalTimeout
from hcq.testing.breakages import attribute, breaks, changed
from hcq.testing.mutants.devices import Context, launches, opened, queues


def _value(get: Any = None, put: Any = None) -> Context:
    before = attribute(NullDevice, "timeline_value")
    read = before.__get__ if get is None else lambda self: get(before.__get__(self))
    write = before.__set__ if put is None else lambda self, value: before.__set__(self, put(value))
    return patch.object(NullDevice, "timeline_value", property(read, write))


@breaks("timeline.attributes", "test_a_device_has_its_timeline")
def there_is_no_timeline_lock() -> Context:
    return patch.object(NullDevice, "timeline_lock", None)


@breaks("timeline.begins", "test_the_timeline_begins_at_one")
def the_timeline_begins_at_two() -> Context:
    return _value(get=lambda value: value + 1)


@breaks("timeline.launch_moves", "test_a_launch_moves_the_timeline_by_one")
def a_launch_moves_the_timeline_by_two() -> Context:
    def launch(program: Any, *bufs: Any, **options: Any) -> Any:
        result = program(*bufs, **options)
        device = program.device
        device.hw_compute_queue_t().signal(device.timeline_signal, device.next_timeline()).submit(device)
        return result

    return launches(launch)


@breaks("timeline.next", "test_reserving_is_atomic")
def reserving_is_not_atomic() -> Context:
    def next_timeline(self: Any) -> int:
        value = int(self.timeline_value)
        time.sleep(0)
        self.timeline_value = value + 1
        return value

    return patch.object(NullDevice, "next_timeline", next_timeline)


@breaks("timeline.client", "test_clients_move_the_timeline_themselves")
def clients_cannot_move_the_timeline() -> Context:
    before = attribute(NullDevice, "timeline_value")
    return patch.object(
        NullDevice, "timeline_value", property(lambda self: before.__get__(self), lambda self, value: None)
    )


@breaks("timeline.order", "test_values_reach_the_queue_in_order_from_many_threads")
def a_launch_is_forgotten() -> Context:
    def launch(program: Any, *bufs: Any, **options: Any) -> Any:
        device = program.device
        with device.timeline_lock:
            if device.timeline_value == 777:
                device.timeline_value = 778
        return program(*bufs, **options)

    return launches(launch)


@breaks("timeline.wrap", "test_the_timeline_passes_what_thirty_two_bits_hold")
def the_timeline_wraps_at_thirty_one_bits() -> Context:
    return changed(NullDevice, "next_timeline", lambda before: lambda self: before(self) % 2**31)


@breaks(
    "timeline.late_finalizer",
    "test_a_finalizer_that_synchronizes_sees_the_launch",
)
def synchronize_does_nothing() -> Context:
    return patch.object(NullDevice, "synchronize", lambda self: None)


@breaks("device.instances", "test_a_device_that_stands_still_holds_no_other")
def synchronize_waits_for_every_device() -> Context:
    def make(synchronize: Any) -> Any:
        def broken(self: Any) -> None:
            for name in hcq.Device.opened:
                other: Any = hcq.Device[name]
                if other.busy() and other is not self:
                    raise SignalTimeout(f"{name} is busy")
            synchronize(self)

        return broken

    return changed(NullDevice, "synchronize", make)


@breaks("queue.between_devices", "test_queues_of_two_devices_order_each_other")
def devices_take_turns() -> Context:
    def make(submit: Any) -> Any:
        def broken(self: Any, dev: Any) -> Any:
            for name in hcq.Device.opened:
                other: Any = hcq.Device[name]
                if other is not dev and other.busy():
                    raise SignalTimeout(f"{name} is busy")
            return submit(self, dev)

        return broken

    return queues("submit", make)


# -- what an opened device has ----------------------------------------------------------------------------------------


@breaks("device.attributes", "test_an_opened_device_has_its_parts")
def a_device_has_no_renderer() -> Context:
    return opened(lambda device: delattr(device, "renderer"))


@breaks("device.info", "test_info_says_what_it_is")
def info_is_empty() -> Context:
    return patch.object(NullDevice, "info", {})


@breaks("device.instances", "test_instances_are_independent_devices", "test_colon_zero_is_the_device_itself")
def instances_have_the_wrong_name() -> Context:
    def make(getitem: Any) -> Any:
        def broken(self: Any, name: Any) -> Any:
            return getitem(self, {"NULL:1": "NULL", "null:0": "NULL:2"}.get(name, name))

        return broken

    return changed(type(hcq.Device), "__getitem__", make)


@breaks("device.program_shortcut", "test_program_is_compile_and_load_in_one")
def program_loads_another_name() -> Context:
    return changed(NullDevice, "program", lambda program: lambda self, name, source: program(self, name + "_", source))


@breaks("device.compiled_base", "test_a_device_made_of_parts_works")
def compiled_forgets_its_runtime() -> Context:
    def make(init: Any) -> Any:
        return lambda self, device, allocator, renderer=None, compiler=None, *rest: init(
            self, device, allocator, renderer, compiler
        )

    return changed(hcq.Compiled, "__init__", make)


@breaks("compiler.pickle", "test_compilers_pickle")
def compilers_do_not_pickle() -> Context:
    from hcq.drivers.null.compiler import NullCompiler

    def refuse(self: Any) -> Any:
        raise TypeError("can't be pickled")

    return patch.object(NullCompiler, "__reduce__", refuse)


class Leak:
    """Memory that is taken from the system bit by bit and never given back: not from what the process has spare."""

    def __init__(self) -> None:
        self.blocks: list[mmap.mmap] = []
        self.left = 0

    def take(self, size: int) -> None:
        if self.left < size:
            self.blocks.append(mmap.mmap(-1, 1 << 20))
            self.left = 1 << 20
        self.left -= size
        self.blocks[-1].write(b"x" * size)


@breaks("threads.launches_flat", "test_queues_and_signals_in_a_loop_leave_nothing_behind")
def each_submit_leaves_a_kilobyte() -> Context:
    leak = Leak()
    return changed(NullComputeQueue, "submit", lambda submit: lambda self, dev: (leak.take(1000), submit(self, dev))[1])


@breaks("threads.launches_flat", "test_launching_leaves_nothing_behind")
def each_launch_leaves_a_hundred_bytes() -> Context:
    leak = Leak()
    return launches(lambda program, *bufs, **options: (leak.take(100), program(*bufs, **options))[1])


@breaks("threads.open_close_flat", "test_opening_and_closing_leaves_nothing_behind")
def each_opening_leaves_a_descriptor() -> Context:
    import os

    return opened(lambda device: (os.eventfd(0), None)[1])
