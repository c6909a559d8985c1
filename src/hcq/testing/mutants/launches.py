"""Breakages of launches, of what programs and devices say of themselves, and of the profiling primitive."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import hcq
from hcq.drivers.null.device import NullDevice
from hcq.drivers.null.program import NullProgram
from hcq.errors import LaunchError
from hcq.queues.launch import check_local_memory
from hcq.runtime.compiled import DeviceLimits
from hcq.testing.breakages import breaks
from hcq.testing.mutants.devices import Context, launches, queues


@breaks("launch.returns_none", "test_a_launch_returns_none_and_a_waited_one_seconds")
def a_launch_returns_its_value() -> Context:
    return launches(lambda program, *bufs, **options: program(*bufs, **options) or 5)


@breaks("launch.async", "test_a_launch_returns_before_the_work_is_done")
def every_launch_waits() -> Context:
    return launches(lambda program, *bufs, **options: program(*bufs, **{**options, "wait": True}))


@breaks("launch.zero_groups", "test_a_waited_launch_of_nothing_took_no_time")
def a_launch_of_nothing_takes_time() -> Context:
    def launch(program: Any, *bufs: Any, **options: Any) -> Any:
        took = program(*bufs, **options)
        return 1e-9 if took == 0.0 else took

    return launches(launch)


@breaks(
    "launch.sizes_refused",
    "test_wrong_sizes_are_refused_and_queue_nothing",
    "test_an_empty_group_is_refused",
    "test_a_group_beyond_the_limits_is_refused",
    "test_what_is_no_allocated_buffer_is_refused",
)
def a_wrong_launch_is_ignored() -> Context:
    def launch(program: Any, *bufs: Any, **options: Any) -> Any:
        try:
            return program(*bufs, **options)
        except LaunchError:
            return None

    return launches(launch)


@breaks("launch.refused_queues_nothing", "test_wrong_sizes_are_refused_and_queue_nothing")
def a_refused_launch_takes_a_timeline_value() -> Context:
    def launch(program: Any, *bufs: Any, **options: Any) -> Any:
        try:
            return program(*bufs, **options)
        except LaunchError:
            program.device.next_timeline()
            raise

    return launches(launch)


@breaks("launch.many_arguments", "test_no_arguments_at_all_work")
def a_launch_needs_arguments() -> Context:
    def launch(program: Any, *bufs: Any, **options: Any) -> Any:
        if not bufs:
            raise LaunchError("no arguments")
        return program(*bufs, **options)

    return launches(launch)


@breaks("launch.prepare", "test_prepare_refuses_as_a_launch_does")
def prepare_checks_nothing() -> Context:
    return patch.object(NullProgram, "prepare", lambda self, *bufs, **options: lambda: None)


@breaks("launch.any_dtype", "test_a_buffer_is_given_as_its_bytes_whatever_it_holds")
def buffers_of_floats_are_refused() -> Context:
    def launch(program: Any, *bufs: Any, **options: Any) -> Any:
        if any(getattr(buf, "dtype", hcq.i32) not in (hcq.i32, hcq.u8) for buf in bufs):
            raise LaunchError("the kernel has a pointer to int")
        return program(*bufs, **options)

    return launches(launch)


@breaks("launch.local_memory", "test_a_program_is_given_local_memory_or_refuses_it")
def local_memory_is_promised_and_not_given() -> Context:
    def give(program: Any, nbytes: Any) -> Any:
        check_local_memory(program.name, nbytes, 1 << 20)
        return program

    return patch.object(NullProgram, "with_local_memory", give)


@breaks("launch.local_memory", "test_wrong_sizes_of_local_memory_are_refused")
def local_memory_is_not_checked() -> Context:
    return patch.object(NullProgram, "with_local_memory", lambda self, nbytes: self)


@breaks("launch.cooperative", "test_a_program_is_launched_cooperatively_or_refuses_it")
def a_cooperative_program_is_as_any() -> Context:
    return patch.object(NullProgram, "cooperative", lambda self: self)


@breaks("launch.starts_unwaited", "test_work_starts_soon_though_nobody_waits")
def work_starts_late() -> Context:
    return queues("submit", lambda submit: lambda self, dev: (time.sleep(0.0005), submit(self, dev))[1])


@breaks("program.sizes_known", "test_a_loaded_program_knows_its_sizes")
def a_program_does_not_know_its_size() -> Context:
    return patch.object(NullProgram, "kernargs_alloc_size", -1)


@breaks("device.limits", "test_limits_are_numbers")
def limits_are_unknown() -> Context:
    return patch.object(NullDevice, "limits", DeviceLimits(max_group_items=-1, max_buffer_bytes=0))


@breaks("profile.primitive", "test_hcq_profile_encloses_what_it_times", "test_hcq_profile_brings_its_own_queue")
def profiles_end_before_they_begin() -> Context:
    before = hcq.hcq_profile

    @contextmanager
    def broken(*rest: Any, **options: Any) -> Any:
        with before(*rest, **options) as (start, end):
            yield end, start

    return patch.object(hcq, "hcq_profile", broken)


@breaks("profile.primitive", "test_a_disabled_hcq_profile_adds_nothing")
def profiles_are_always_on() -> Context:
    before = hcq.hcq_profile
    return patch.object(hcq, "hcq_profile", lambda dev, enabled, *rest, **options: before(dev, True, *rest, **options))
