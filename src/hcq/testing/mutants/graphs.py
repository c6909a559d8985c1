"""Breakages of graphs."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import hcq
from hcq.graph.graph import Graph
from hcq.graph.inputs import Inputs
from hcq.graph.parts import Done
from hcq.graph.recording import Recorder
from hcq.runtime import watch, watching
from hcq.testing.breakages import breaks, changed, together
from hcq.testing.mutants.devices import Context


@contextmanager
def _leaves_no_capture() -> Any:
    """What a breakage of begin or end leaves counted would make the process watched for good."""
    before = watching._captures
    try:
        yield
    finally:
        watching._thread.capture, watching._captures = None, before
        watching._note()


@breaks("graph.capture", "test_copies_are_recorded_and_replayed")
def captures_let_copies_run() -> Context:
    return together(*(patch.object(Recorder, name, lambda *_: False) for name in ("copy_buffers", "transfer", "copy")))


@breaks("graph.capture", "test_a_block_that_raises_leaves_nothing_behind")
def captures_go_on_after_their_block() -> Context:
    return together(_leaves_no_capture(), patch.object(watch, "end_capture", lambda: None))


@breaks("graph.replay", "test_a_replay_waits_for_signals_from_outside")
def replays_are_over_at_once() -> Context:
    return patch.object(Graph, "replay", lambda *_, **__: Done())


@breaks("graph.refuses", "test_what_needs_results_is_refused_while_recording")
def captures_refuse_nothing() -> Context:
    @contextmanager
    def nothing(_: Any = None) -> Any:
        yield []

    return patch.object(hcq, "capture", nothing)


@breaks("graph.per_thread", "test_a_capture_is_of_its_thread_and_does_not_nest")
def captures_nest() -> Context:
    begin = patch.object(watch, "begin_capture", lambda observer: setattr(watching._thread, "capture", observer))
    return together(_leaves_no_capture(), begin)


@breaks("graph.owns", "test_a_graph_owns_its_buffers")
def graphs_own_nothing() -> Context:
    return patch.object(Recorder, "_keep", lambda *_: None)


@breaks("graph.owns", "test_a_replay_goes_on_when_the_graph_is_dropped")
def replays_end_with_their_graph() -> Context:
    return patch.object(Graph, "replay", lambda *_, **__: Done())


@breaks("graph.owns", "test_an_inherited_graph_is_refused")
def inherited_graphs_are_replayed() -> Context:
    return patch.object(Graph, "replay", lambda *_, **__: Done())


@breaks("graph.inputs", "test_inputs_are_replaced_by_name")
def inputs_stay_as_they_were_captured() -> Context:
    return changed(Inputs, "uses", lambda _: lambda *_: [])


@breaks("graph.capture", "test_a_picture_names_commands_queues_and_waits")
def pictures_leave_out_the_devices() -> Context:
    return changed(Graph, "draw", lambda before: lambda self, **given: before(self, **given).replace("NULL", ""))
