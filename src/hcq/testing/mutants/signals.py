"""Breakages of signals: values, waiting, awaiting, the memory they lie in."""

from __future__ import annotations

import os
import time
from decimal import Decimal
from typing import Any
from unittest.mock import patch

from hcq.errors import SignalTimeout
from hcq.queues.signal import HCQSignal
from hcq.testing.breakages import attribute, breaks, changed
from hcq.testing.mutants.devices import Context, opened


def _values(get: Any = None, put: Any = None) -> Context:
    before = attribute(HCQSignal, "value")
    read = before.__get__ if get is None else lambda self: get(before.__get__(self))
    write = before.__set__ if put is None else lambda self, value: before.__set__(self, put(value))
    return patch.object(HCQSignal, "value", property(read, write))


@breaks("signal.initial", "test_a_signal_has_a_value", "test_the_pool_grows_and_signals_are_their_own")
def signals_begin_at_nothing() -> Context:
    return opened(lambda device: setattr(device, "signal_t", type("Zero", (HCQSignal,), {"__new__": _zero})))


def _zero(cls: Any, value: int = 0, memory: Any = None) -> Any:
    new: Any = HCQSignal.__new__
    made = new(cls, 0) if memory is None else new(cls, 0, memory)
    made.value = 0
    return made


@breaks("signal.bits", "test_a_signal_holds_sixty_four_bits")
def signals_hold_thirty_two_bits() -> Context:
    return _values(get=lambda value: value % 2**32)


@breaks("signal.get_set", "test_a_signal_has_a_value")
def small_values_are_lost() -> Context:
    return _values(put=lambda value: 0 if value == 1 else value)


@breaks(
    "signal.timeout",
    "test_a_wait_times_out_and_says_so",
    "test_a_value_never_promised_is_waited_for_in_vain",
    "test_a_wait_that_timed_out_succeeds_later",
    "test_what_follows_a_wait_waits",
)
def waits_end_at_once() -> Context:
    return changed(HCQSignal, "wait", lambda wait: lambda self, value, timeout=10_000: None)


@breaks(
    "signal.wakes",
    "test_a_sleeping_wait_wakes_when_the_host_sets_it[0.1]",
    "test_a_sleeping_wait_wakes_when_a_queue_sets_it[0.1]",
    "test_other_threads_run_while_one_waits",
    "test_many_threads_wait_for_one_signal",
    "test_control_c_ends_a_wait",
    "test_a_posix_signal_does_not_end_a_wait",
    "test_an_exception_from_a_handler_ends_a_wait",
    "test_the_host_sets_a_signal_late",
)
def waits_look_once() -> Context:
    def make(wait: Any) -> Any:
        return lambda self, value, timeout=10_000: wait(self, value, 0)

    return changed(HCQSignal, "wait", make)


@breaks("signal.wait_satisfied", "test_a_reached_value_is_not_waited_for")
def waits_are_for_exactly_the_value() -> Context:
    def make(wait: Any) -> Any:
        def broken(self: Any, value: int, timeout: float = 10_000) -> None:
            if self.value != value:
                raise SignalTimeout(f"{self.value}, not {value}")

        return broken

    return changed(HCQSignal, "wait", make)


@breaks("signal.timeout", "test_a_wait_times_out_and_says_so", "test_a_timeout_names_who_was_to_set_the_signal")
def a_timeout_says_nothing() -> Context:
    def make(wait: Any) -> Any:
        def broken(self: Any, value: int, timeout: float = 10_000) -> None:
            try:
                wait(self, value, timeout)
            except SignalTimeout:
                raise SignalTimeout("too late") from None

        return broken

    return changed(HCQSignal, "wait", make)


@breaks("signal.late_set", "test_a_wait_that_timed_out_succeeds_later")
def a_timeout_is_remembered() -> Context:
    late: dict[int, Any] = {}

    def make(wait: Any) -> Any:
        def broken(self: Any, value: int, timeout: float = 10_000) -> None:
            if id(self) in late:
                raise SignalTimeout("too late, as before")
            try:
                wait(self, value, timeout)
            except SignalTimeout:
                late[id(self)] = self
                raise

        return broken

    return changed(HCQSignal, "wait", make)


@breaks("signal.gil", "test_other_threads_run_while_one_waits")
def waits_hold_the_gil() -> Context:
    import ctypes

    usleep = ctypes.PyDLL(None).usleep  # a PyDLL keeps the GIL

    def make(wait: Any) -> Any:
        return lambda self, value, timeout=10_000: (usleep(300_000), wait(self, value, 0))[1]

    return changed(HCQSignal, "wait", make)


@breaks("signal.control_c", "test_control_c_ends_a_wait", "test_an_exception_from_a_handler_ends_a_wait")
def waits_swallow_what_handlers_raise() -> Context:
    def make(wait: Any) -> Any:
        def broken(self: Any, value: int, timeout: float = 10_000) -> None:
            try:
                wait(self, value, timeout)
            except SignalTimeout:
                raise
            except BaseException:
                return

        return broken

    return changed(HCQSignal, "wait", make)


@breaks("signal.eintr", "test_a_posix_signal_does_not_end_a_wait")
def a_posix_signal_ends_a_wait() -> Context:
    import select
    import signal

    def make(wait: Any) -> Any:
        def broken(self: Any, value: int, timeout: float = 10_000) -> None:
            read, write = os.pipe2(os.O_NONBLOCK)
            before = signal.set_wakeup_fd(write)
            try:
                for _ in range(100):
                    if self.value >= value:
                        return
                    if select.select([read], [], [], 0.003)[0]:
                        raise InterruptedError
            finally:
                signal.set_wakeup_fd(before)
                os.close(read)
                os.close(write)

        return broken

    return changed(HCQSignal, "wait", make)


# -- awaiting ---------------------------------------------------------------------------------------------------------


@breaks("signal.await", "test_awaiting_a_signal_and_a_device", "test_awaiting_can_be_cancelled_and_timed")
def reached_is_reached_at_once() -> Context:
    async def reached(self: Any, value: int) -> None:
        return None

    return patch.object(HCQSignal, "reached", reached)


@breaks("signal.await_one_descriptor", "test_a_thousand_tasks_use_one_descriptor")
def each_task_has_a_descriptor() -> Context:
    def make(reached: Any) -> Any:
        async def broken(self: Any, value: int) -> None:
            descriptor = os.eventfd(0)
            try:
                await reached(self, value)
            finally:
                os.close(descriptor)

        return broken

    return changed(HCQSignal, "reached", make)


# -- memory -----------------------------------------------------------------------------------------------------------


@breaks(
    "signal.memory",
    "test_a_signal_lies_in_memory_of_the_caller",
    "test_a_signal_works_between_processes",
    "test_memory_that_will_not_do_is_refused",
)
def the_callers_memory_is_ignored() -> Context:
    return opened(lambda device: setattr(device, "signal_t", lambda value=0, memory=None: HCQSignal(value)))


@breaks("signal.memory", "test_a_signal_lies_in_a_buffer")
def the_callers_memory_is_not_held() -> Context:
    import ctypes

    def make(value: int = 0, memory: Any = None) -> Any:
        if memory is None:
            return HCQSignal(value)
        address = ctypes.addressof(ctypes.c_ubyte.from_buffer(memory))
        return HCQSignal(value, memory=(ctypes.c_ubyte * 64).from_address(address))

    return opened(lambda device: setattr(device, "signal_t", make))


@breaks(
    "signal.pool",
    "test_the_pool_grows_and_signals_are_their_own",
    "test_signals_made_and_dropped_by_threads_stay_apart",
)
def the_pool_has_two_signals() -> Context:
    pool: list[Any] = []

    def make(value: int = 0, memory: Any = None) -> Any:
        if len(pool) < 2:
            pool.append(HCQSignal(value))
            return pool[-1]
        pool.append(pool.pop(0))
        pool[-1].value = value
        return pool[-1]

    return opened(lambda device: setattr(device, "signal_t", make))


@breaks("signal.timestamp", "test_time_stamps_are_on_the_clock_of_perf_counter", "test_time_stamps_follow_each_other")
def time_stamps_run_backwards() -> Context:
    before = attribute(HCQSignal, "timestamp")
    end = Decimal(time.perf_counter_ns()) / 1000 * 2
    return patch.object(HCQSignal, "timestamp", property(lambda self: end - before.__get__(self)))
