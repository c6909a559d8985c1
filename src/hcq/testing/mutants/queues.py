"""Breakages of command queues, updates and bind."""

from __future__ import annotations

import threading
import weakref
from typing import Any
from unittest.mock import patch

import hcq
from hcq.drivers.null.queue import NullComputeQueue, NullCopyQueue
from hcq.errors import LaunchError
from hcq.queues.signal import HCQSignal
from hcq.testing.breakages import attribute, breaks, changed, together
from hcq.testing.mutants.devices import Context, opened, queues

# -- commands ---------------------------------------------------------------------------------------------------------


@breaks("queue.kinds", "test_a_device_has_both_kinds_of_queue")
def the_kinds_are_exchanged() -> Context:
    def change(device: Any) -> None:
        device.hw_compute_queue_t, device.hw_copy_queue_t = device.hw_copy_queue_t, device.hw_compute_queue_t

    return opened(change)


@breaks("queue.returns_self", "test_every_method_returns_the_queue_and_adds_one")
def wait_returns_nothing() -> Context:
    return queues("wait", lambda wait: lambda self, *rest: (wait(self, *rest), None)[1])


@breaks("queue.returns_self", "test_every_method_returns_the_queue_and_adds_one")
def a_barrier_is_no_command() -> Context:
    return changed(NullComputeQueue, "memory_barrier", lambda before: lambda self: self)


@breaks(
    "queue.copy",
    "test_copy_is_exact[1-]",
    "test_copy_works_on_the_devices_own_addresses",
    "test_commands_see_what_earlier_ones_wrote",
    "test_threads_copy_through_their_own_memory",
    "test_random_copies_over_two_devices_agree_with_the_model",
    "test_a_queue_is_submitted_as_often_as_wanted",
    "test_a_bound_queue_of_copies_is_submitted_while_earlier_submits_wait",
    "test_update_copy",
)
def copies_round_down_to_words() -> Context:
    def make(copy: Any) -> Any:
        return lambda self, dest, source, size: copy(self, dest, source, max(size - 1, 0) // 4 * 4)

    return changed(NullCopyQueue, "copy", make)


@breaks("copy.zero_bytes", "test_a_copy_of_no_bytes_is_nothing")
def a_copy_of_no_bytes_is_no_command() -> Context:
    def make(copy: Any) -> Any:
        return lambda self, dest, source, size: copy(self, dest, source, size) if size else self

    return changed(NullCopyQueue, "copy", make)


@breaks("queue.wrong_arguments", "test_exec_refuses_wrong_sizes_and_adds_nothing")
def exec_takes_wrong_sizes() -> Context:
    def make(run: Any) -> Any:
        def broken(self: Any, program: Any, kernargs: int, groups: Any, items: Any) -> Any:
            try:
                return run(self, program, kernargs, groups, items)
            except LaunchError:
                return run(self, program, kernargs, (1, 1, 1), (1, 1, 1))

        return broken

    return changed(NullComputeQueue, "exec", make)


@breaks("queue.wrong_arguments", "test_wrong_arguments_add_no_command")
def signalling_nothing_is_ignored() -> Context:
    return queues("signal", lambda signal: lambda self, sig, value: self if sig is None else signal(self, sig, value))


@breaks(
    "queue.timestamp",
    "test_time_stamps_follow_each_other",
    "test_a_time_stamp_after_a_wait_is_taken_after_it",
    "test_time_stamps_are_on_the_clock_of_perf_counter",
    "test_hcq_profile_encloses_what_it_times",
    "test_hcq_profile_brings_its_own_queue",
)
def time_stamps_are_not_written() -> Context:
    return queues("timestamp", lambda before: lambda self, sig: self.signal(sig, sig.value))


@breaks("queue.timestamp", "test_a_time_stamp_after_a_wait_is_taken_after_it")
def time_stamps_come_before_the_wait() -> Context:
    """The wait before a time-stamp is moved behind it."""

    def make_wait(wait: Any) -> Any:
        return lambda self, sig, value: (held.setdefault(id(self), []).append((sig, value)), self)[1]

    def make_stamp(timestamp: Any) -> Any:
        return lambda self, sig: _flush(timestamp(self, sig))

    def _flush(queue: Any) -> Any:
        for sig, value in held.pop(id(queue), ()):
            before(queue, sig, value)
        return queue

    held: dict[int, list[Any]] = {}
    before = NullComputeQueue.wait
    return together(changed(NullComputeQueue, "wait", make_wait), changed(NullComputeQueue, "timestamp", make_stamp))


@breaks("queue.signal_after", "test_signals_are_set_in_order")
def signals_change_places() -> Context:
    """Of two signals in a row the second is set first."""
    held: dict[int, Any] = {}

    def make(signal: Any) -> Any:
        def broken(self: Any, sig: Any, value: int) -> Any:
            if (first := held.pop(id(self), None)) is None:
                held[id(self)] = sig, value
                return self
            return signal(signal(self, sig, value), *first)

        return broken

    def flush(submit: Any) -> Any:
        def broken(self: Any, dev: Any) -> Any:
            if (last := held.pop(id(self), None)) is not None:
                before[type(self)](self, *last)
            return submit(self, dev)

        return broken

    before = {kind: kind.signal for kind in (NullComputeQueue, NullCopyQueue)}
    return together(queues("signal", make), queues("submit", flush))


@breaks(
    "queue.wait_at_least",
    "test_what_follows_a_wait_waits",
    "test_the_other_queue_goes_on",
    "test_close_of_a_device_waits_for_its_queues",
    "test_a_timeout_names_who_was_to_set_the_signal",
    "test_a_wait_that_timed_out_succeeds_later",
    "test_update_wait",
)
def queues_do_not_wait() -> Context:
    return queues("wait", lambda wait: lambda self, sig, value: wait(self, sig, 0))


@breaks("queue.unsigned", "test_queues_compare_unsigned")
def queues_compare_thirty_two_bits() -> Context:
    return queues("wait", lambda wait: lambda self, sig, value: wait(self, sig, value % 2**32))


@breaks(
    "queue.in_order",
    "test_submits_run_in_the_order_they_came",
    "test_two_queues_take_turns",
    "test_queues_of_two_devices_order_each_other",
)
def waits_are_for_the_next_value() -> Context:
    return queues("wait", lambda wait: lambda self, sig, value: wait(self, sig, value + 1))


@breaks("queue.side_by_side", "test_the_other_queue_goes_on", "test_two_queues_take_turns")
def both_queues_are_one() -> Context:
    """The copy queue's submits wait for what the compute queue was given before, and the other way round."""
    last: dict[int, Any] = {}

    def make(submit: Any) -> Any:
        def broken(self: Any, dev: Any) -> Any:
            gate = last.get(id(dev))
            done = last[id(dev)] = HCQSignal()
            if gate is not None:
                submit(type(self)().wait(gate, 1), dev)
            submit(self, dev)
            submit(type(self)().signal(done, 1), dev)
            return self

        return broken

    return queues("submit", make)


@breaks("queue.host_signal", "test_the_host_sets_a_signal_late", "test_a_sleeping_wait_wakes_when_a_queue_sets_it")
def the_host_cannot_set_signals() -> Context:
    before = attribute(HCQSignal, "value")
    return patch.object(HCQSignal, "value", property(lambda self: before.__get__(self), lambda self, value: None))


@breaks(
    "queue.resubmit",
    "test_a_queue_is_submitted_as_often_as_wanted",
    "test_a_bound_queue_of_copies_is_submitted_while_earlier_submits_wait",
    "test_update_signal",
)
def a_queue_runs_once() -> Context:
    done: set[int] = set()
    kept: list[Any] = []

    def make(submit: Any) -> Any:
        def broken(self: Any, dev: Any) -> Any:
            if id(self) in done:
                return self
            done.add(id(self))
            kept.append(self)
            return submit(self, dev)

        return broken

    return queues("submit", make)


@breaks("queue.empty_submit", "test_an_empty_submit_does_nothing")
def an_empty_submit_moves_the_timeline() -> Context:
    def make(submit: Any) -> Any:
        def broken(self: Any, dev: Any) -> Any:
            if not len(self):
                self.signal(dev.timeline_signal, dev.next_timeline())
            return submit(self, dev)

        return broken

    return queues("submit", make)


@breaks("queue.overrun", "test_thousands_of_submits_behind_a_wait_lose_nothing")
def a_full_ring_loses_submits() -> Context:
    count: list[int] = []

    def make(submit: Any) -> Any:
        def broken(self: Any, dev: Any) -> Any:
            count.append(1)
            return submit(self, dev) if len(count) != 3000 else self

        return broken

    return queues("submit", make)


@breaks("queue.hcq_command", "test_hcq_command_records_the_words_of_a_command")
def hcq_command_records_nothing() -> Context:
    return patch.object(hcq, "hcq_command", lambda method: method)


@breaks(
    "signal.pool_safe",
    "test_dropped_signals_come_back_only_after_the_work",
    "test_a_signal_that_work_refers_to_is_not_handed_out",
)
def signals_are_handed_out_while_work_refers_to_them() -> Context:
    pool: list[Any] = []

    def give(value: int = 0, memory: Any = None) -> Any:
        import sys

        for sig in pool:
            if sys.getrefcount(sig) == 3:  # the pool, the loop, the call
                sig.value = value
                return sig
        sig = HCQSignal(value)
        pool.append(sig)
        return sig

    return opened(lambda device: setattr(device, "signal_t", give))


# -- updates and bind -------------------------------------------------------------------------------------------------


@breaks("update.signal", "test_update_signal")
def update_signal_does_nothing() -> Context:
    return queues("update_signal", lambda before: lambda self, index, signal=None, value=None: self)


@breaks("update.wait", "test_update_wait", "test_an_updated_wait_leaves_the_one_that_is_waiting")
def update_wait_does_nothing() -> Context:
    return queues("update_wait", lambda before: lambda self, index, signal=None, value=None: self)


@breaks("update.copy", "test_update_copy", "test_random_copies_over_two_devices_agree_with_the_model")
def update_copy_changes_only_the_destination() -> Context:
    def make(update: Any) -> Any:
        return lambda self, index, dest=None, src=None: update(self, index, dest=dest)

    return changed(NullCopyQueue, "update_copy", make)


@breaks("update.wrong_kind", "test_the_wrong_kind_of_command_is_refused")
def the_wrong_kind_of_command_is_ignored() -> Context:
    def make(update: Any) -> Any:
        def broken(self: Any, *rest: Any, **options: Any) -> Any:
            try:
                return update(self, *rest, **options)
            except RuntimeError:
                return self

        return broken

    return queues("update_wait", make)


@breaks("update.index", "test_an_index_out_of_range_is_refused[-1]")
def negative_indices_count_from_the_end() -> Context:
    def make(update: Any) -> Any:
        return lambda self, index, *rest, **options: update(self, index % len(self), *rest, **options)

    return queues("update_wait", make)


@breaks(
    "update.in_flight",
    "test_an_update_does_not_disturb_an_earlier_submit[False]",
    "test_an_updated_wait_leaves_the_one_that_is_waiting[False]",
)
def a_submit_is_read_later() -> Context:
    def make(submit: Any) -> Any:
        def broken(self: Any, dev: Any) -> Any:
            threading.Timer(0.05, submit, (self, dev)).start()
            return self

        return broken

    return queues("submit", make)


@breaks(
    "bind.dropped", "test_a_bound_queue_may_be_dropped_while_it_runs", "test_a_submitted_queue_may_be_dropped[True]"
)
def a_dropped_queue_is_forgotten() -> Context:
    def make(submit: Any) -> Any:
        def broken(self: Any, dev: Any) -> Any:
            weak = weakref.ref(self)
            threading.Timer(0.02, lambda: weak() is not None and submit(weak(), dev)).start()
            return self

        return broken

    return queues("submit", make)
