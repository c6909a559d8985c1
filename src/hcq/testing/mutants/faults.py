"""Breakages of fault injection and of what a lost device means."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import hcq
from hcq.drivers.null.device import NullDevice
from hcq.errors import DeviceLost, SignalTimeout
from hcq.queues import faults, report
from hcq.queues.signal import HCQSignal
from hcq.testing import injection
from hcq.testing.breakages import breaks, changed, together
from hcq.testing.mutants.devices import Context, launches


@breaks(
    "fault.inject_alloc",
    "test_an_allocation_fails_at_the_call",
    "test_a_compile_fails_at_the_call",
    "test_a_delayed_copy_or_allocation_comes_late_and_whole[alloc]",
)
def injected_calls_do_not_fail() -> Context:
    return patch.object(injection._Call, "count", lambda self: None)


@breaks(
    "fault.inject_exec",
    "test_a_failed_exec_loses_the_device",
    "test_a_failed_copy_loses_the_device",
    "test_a_failed_submit_raises_and_loses_the_device",
    "test_a_launch_in_the_block_fails_though_nobody_waits_there",
    "test_a_copy_in_the_block_fails_though_nobody_waits_there",
    "test_a_delay_stalls_and_nothing_fails",
    "test_synchronize_raises_what_failed",
    "test_an_awaiting_task_is_told",
    "test_losing_and_opening_in_a_loop",
)
def injected_commands_do_not_fail() -> Context:
    return together(
        patch.object(injection._Command, "_arm", lambda self: None),
        patch.object(injection._Command, "_await_queued", lambda self: None),
        patch.object(injection._Command, "_disarm", lambda self: None),
    )


@breaks("fault.inject_context", "test_an_injection_ends_with_its_block")
def an_injection_stays() -> Context:
    return patch.object(injection._Command, "_disarm", lambda self: None)


@breaks("fault.inject_context", "test_a_block_ends_though_its_queue_waits_for_what_comes_after_it")
def an_injection_tells_that_it_fired_where_it_did_not() -> Context:
    def make(disarm: Any) -> Any:
        def broken(self: Any) -> None:
            disarm(self)
            self.fired = True

        return broken

    return changed(injection._Command, "_disarm", make)


@breaks("fault.inject_error", "test_a_wrong_injection_is_refused")
def a_wrong_injection_is_taken() -> Context:
    class Anything(tuple[str, ...]):
        def __contains__(self, what: object) -> bool:
            return True

    return together(
        patch.object(injection, "WHAT", Anything()),
        patch.object(injection._Command, "_arm", lambda self: None),
        patch.object(injection._Command, "_disarm", lambda self: None),
    )


@breaks(
    "fault.waiters",
    "test_whoever_waits_is_told_at_once",
    "test_a_waiter_that_sleeps_is_woken",
    "test_a_failed_copy_loses_the_device",
    "test_work_that_waits_for_a_lost_device_fails_with_the_cause",
    "test_what_was_queued_before_the_loss_and_after_it_fails_alike",
)
def waiters_are_not_told() -> Context:
    def make(wait: Any) -> Any:
        def broken(self: Any, value: int, timeout: float = 10_000) -> None:
            try:
                wait(self, value, timeout)
            except DeviceLost:
                raise SignalTimeout("too late") from None

        return broken

    return changed(HCQSignal, "wait", make)


@breaks("fault.waiters", "test_an_awaiting_task_is_told")
def awaiting_tasks_are_not_told() -> Context:
    def make(reached: Any) -> Any:
        async def broken(self: Any, value: int) -> None:
            try:
                await reached(self, value)
            except DeviceLost:
                return

        return broken

    return changed(HCQSignal, "reached", make)


@breaks(
    "fault.first_cause",
    "test_a_failed_exec_loses_the_device",
    "test_the_first_cause_is_kept",
    "test_a_failed_copy_loses_the_device",
)
def the_cause_is_lost() -> Context:
    return changed(faults, "lost", lambda lost: lambda device, *what: lost(device, "unknown"))


@breaks("fault.report", "test_a_time_out_says_what_every_queue_is_at")
def a_time_out_says_nothing_of_the_queues() -> Context:
    return patch.object(report, "explained", lambda message: message)


@breaks("fault.report", "test_a_lost_device_says_what_its_queues_were_at")
def a_lost_device_says_nothing_of_the_queues() -> Context:
    return changed(faults, "lost", lambda lost: lambda device, cause, command=None, told="": lost(device, cause))


@breaks("device.synchronize_raises", "test_synchronize_raises_what_failed", "test_the_first_cause_is_kept")
def synchronize_hides_a_loss() -> Context:
    def make(synchronize: Any) -> Any:
        def broken(self: Any) -> None:
            try:
                synchronize(self)
            except DeviceLost:
                return

        return broken

    return changed(NullDevice, "synchronize", make)


@breaks("fault.launch_lost", "test_the_first_cause_is_kept")
def launching_on_a_lost_device_does_nothing() -> Context:
    def launch(program: Any, *bufs: Any, **options: Any) -> Any:
        return None if program.device.lost else program(*bufs, **options)

    return launches(launch)


@breaks("fault.frees", "test_frees_and_finalizers_of_a_lost_device_are_silent")
def frees_on_a_lost_device_complain() -> Context:
    def make(deallocate: Any) -> Any:
        def broken(self: Any) -> None:
            opened: Any = hcq.Device[self.device]
            opened.check_usable()
            deallocate(self)

        return broken

    return changed(hcq.Buffer, "deallocate", make)


@breaks("fault.reopen", "test_a_lost_device_opens_again", "test_losing_and_opening_in_a_loop")
def a_lost_device_cannot_be_closed() -> Context:
    def make(close: Any) -> Any:
        def broken(self: Any) -> None:
            if not self.closed:
                self.check_usable()
            close(self)

        return broken

    return changed(NullDevice, "close", make)


@breaks("fault.others", "test_other_devices_go_on")
def a_loss_is_everybodys() -> Context:
    def make(synchronize: Any) -> Any:
        def broken(self: Any) -> None:
            for name in hcq.Device.opened:
                other: Any = hcq.Device[name]
                if name.startswith("NULL") and other.lost:
                    raise other.lost
            synchronize(self)

        return broken

    return changed(NullDevice, "synchronize", make)


@breaks("fault.downstream", "test_work_that_waits_for_a_lost_device_fails_with_the_cause")
def a_dropped_submit_is_told_for_ever() -> Context:
    told: dict[int, Any] = {}

    def make(synchronize: Any) -> Any:
        def broken(self: Any) -> None:
            if id(self) in told:
                raise told[id(self)]
            try:
                synchronize(self)
            except DeviceLost as error:
                told[id(self)] = error
                raise

        return broken

    return changed(NullDevice, "synchronize", make)
