"""Breakages of the checks: what they would miss, or find where nothing is."""

from __future__ import annotations

from typing import Any

from hcq.testing.breakages import breaks, changed
from hcq.testing.mutants.devices import Context
from hcq.validation.memory import Memory
from hcq.validation.model import Model
from hcq.validation.redzones import RedZones
from hcq.validation.report import Finding, Kind


@breaks("checks.races", "test_checks_find_copies_without_order")
def accesses_are_never_in_conflict() -> Context:
    return changed(Memory, "touch", lambda touch: lambda *args: [])


@breaks("checks.deadlocks", "test_checks_refuse_a_cycle_of_queues")
def every_standing_wait_is_a_deadlock() -> Context:
    def make(deadlock: Any) -> Any:
        return lambda self, queue, commands: Finding(Kind.DEADLOCK, "a wait")

    return changed(Model, "deadlock", make)


@breaks("checks.lifetimes", "test_checks_find_the_address_of_freed_memory")
def freed_memory_counts_as_live() -> Context:
    def make(resolve: Any) -> Any:
        return lambda self, access, deed: (resolve(self, access, deed)[0], None)

    return changed(Memory, "resolve", make)


@breaks("checks.bounds", "test_checks_find_a_write_past_the_end")
def red_zones_are_not_looked_at() -> Context:
    return changed(RedZones, "check", lambda check: lambda self, given=None: [])
