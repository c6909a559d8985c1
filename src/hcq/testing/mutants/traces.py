"""Breakages of traces."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import hcq
from hcq.profiling import chrome, files, flows, session, spans
from hcq.testing.breakages import breaks, changed
from hcq.testing.mutants.devices import Context


@breaks("profile.trace", "test_a_profile_writes_json_with_processes_threads_and_positive_durations")
def a_trace_has_no_threads() -> Context:
    def make(events: Any) -> Any:
        return lambda profile: (event for event in events(profile) if event["name"] != "thread_name")

    return changed(chrome, "_events", make)


@breaks("profile.trace", "test_a_profile_writes_protobuf_by_the_suffix")
def every_trace_is_json() -> Context:
    return patch.object(files, "has_perfetto", lambda: False)


def _renamed(change: Any) -> Context:
    def make(from_native: Any) -> Any:
        def broken(*rest: Any) -> Any:
            recorded = from_native(*rest)
            recorded.spans[:] = [change(span) for span in recorded.spans]
            return recorded

        return broken

    return changed(spans, "from_native", make)


@breaks("profile.names", "test_kernels_go_by_their_names_and_copies_by_where_they_lead")
def copies_are_named_by_their_source_alone() -> Context:
    return _renamed(lambda span: span._replace(name=span.name.partition(" -> ")[0]))


@breaks("profile.names", "test_explicit_queues_are_recorded_bound_ones_too")
def explicit_queues_are_not_recorded() -> Context:
    return _renamed(lambda span: span._replace(kind="range") if span.kind == "kernel" else span)


@breaks("profile.flows", "test_flows_lead_across_queues")
def waits_lead_nowhere() -> Context:
    return patch.object(flows._Search, "_follow", lambda *rest: None)


@breaks("profile.clock", "test_times_are_the_hosts_and_starts_come_after_the_waits")
def starts_are_taken_before_the_waits() -> Context:
    return _renamed(lambda span: span._replace(start=1))


@breaks("profile.variable", "test_profile_1_writes_the_trace_at_the_end")
def nothing_is_written_at_the_end() -> Context:
    return patch.object(session.Profile, "save", lambda self, path: path)


@breaks("profile.no_hold", "test_a_profile_keeps_no_buffer_and_no_program_alive")
def copies_keep_what_they_copied() -> Context:
    before, kept = hcq.copy, list[Any]()

    def broken(*rest: Any, **options: Any) -> None:
        kept.append(rest)
        before(*rest, **options)

    return patch.object(hcq, "copy", broken)
