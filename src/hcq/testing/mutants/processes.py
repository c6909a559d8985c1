"""Breakages of what holds in forked children and at the interpreter's end."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from typing import Any
from unittest.mock import patch

import hcq
from hcq.drivers.null.device import NullDevice
from hcq.drivers.null.program import NullProgram
from hcq.errors import ForkedDeviceError
from hcq.queues.signal import HCQSignal
from hcq.testing.breakages import attribute, breaks, changed, together
from hcq.testing.mutants.devices import Context, opened, queues


@breaks("fork.device", "test_an_inherited_device_is_refused[synchronize]")
def an_inherited_device_does_nothing() -> Context:
    return patch.object(NullDevice, "synchronize", lambda self: None)


def _ignored_in_children(before: Any) -> Any:
    def broken(*rest: Any, **options: Any) -> Any:
        try:
            return before(*rest, **options)
        except ForkedDeviceError:
            return None

    return broken


@breaks("fork.buffer", "test_an_inherited_buffer_is_refused")
def an_inherited_buffer_reads_as_nothing() -> Context:
    return changed(hcq.Buffer, "copyout", _ignored_in_children)


@breaks("fork.queue", "test_inherited_queues_and_signals_are_refused")
def an_inherited_queue_does_nothing() -> Context:
    return queues("submit", _ignored_in_children)


@breaks("fork.signal", "test_inherited_queues_and_signals_are_refused")
def an_inherited_signal_does_nothing() -> Context:
    return changed(HCQSignal, "wait", _ignored_in_children)


@breaks("fork.program", "test_an_inherited_program_is_refused")
def an_inherited_program_does_nothing() -> Context:
    return changed(NullProgram, "fill_kernargs", _ignored_in_children)


@breaks(
    "fork.registry_empty",
    "test_a_child_opens_the_same_device_anew",
    "test_a_child_may_drop_what_it_inherited_while_the_parent_is_at_work",
    "test_a_fork_while_threads_launch_leaves_both_sides_well",
)
def a_child_finds_the_parents_devices() -> Context:
    first: dict[str, Any] = {}

    def make(getitem: Any) -> Any:
        def broken(self: Any, name: Any) -> Any:
            if os.getpid() != parent and name in first:
                return first[name]
            first[name] = getitem(self, name)
            return first[name]

        return broken

    parent = os.getpid()
    return changed(type(hcq.Device), "__getitem__", make)


@breaks("fork.npy", "test_arrays_go_on_working_in_a_child")
def arrays_are_refused_in_a_child() -> Context:
    def make(copyout: Any) -> Any:
        def broken(self: Any, dest: Any) -> None:
            if os.getpid() != parent:
                raise ForkedDeviceError("inherited")
            copyout(self, dest)

        return broken

    parent = os.getpid()
    return changed(hcq.Buffer, "copyout", make)


@breaks("fork.parent_unharmed", "test_a_parent_that_waits_while_it_forks_goes_on")
def a_fork_breaks_the_parents_signals() -> Context:
    forked: list[int] = []
    os.register_at_fork(after_in_parent=lambda: forked.append(1))
    before = attribute(HCQSignal, "value")

    def put(self: Any, value: int) -> None:
        if not forked:
            before.__set__(self, value)

    return patch.object(HCQSignal, "value", property(lambda self: before.__get__(self), put))


@breaks("fork.cloexec", "test_descriptors_are_closed_on_exec")
def descriptors_are_inherited() -> Context:
    def change(device: Any) -> None:
        made.append(os.eventfd(0))
        os.set_inheritable(made[-1], True)

    made: list[int] = []
    return together(opened(change), _closing(made))


def _closing(descriptors: list[int]) -> Context:
    from contextlib import contextmanager

    @contextmanager
    def closing() -> Any:
        yield
        for descriptor in descriptors:
            os.close(descriptor)

    return closing()


@breaks(
    "exit.queued",
    "test_leaving_with_work_queued",
    "test_leaving_with_a_queue_that_stands",
    "test_leaving_with_a_lost_device",
    "test_leaving_with_a_fault_nobody_asked_for",
    "test_leaving_while_threads_wait",
    "test_finalizers_at_exit_are_silent",
    "test_a_forked_child_leaves_in_the_ordinary_way",
)
def leaving_complains() -> Context:
    stack = contextlib.ExitStack()
    atexit.register(complain := lambda: print("work was still queued", file=sys.stderr))
    stack.callback(atexit.unregister, complain)
    return stack


@breaks("fault.finalizers", "test_frees_and_finalizers_of_a_lost_device_are_silent")
def finalizers_complain() -> Context:
    def make(deallocate: Any) -> Any:
        def broken(self: Any) -> None:
            print("freed on a lost device", file=sys.stderr)
            deallocate(self)

        return broken

    return changed(hcq.Buffer, "deallocate", make)
