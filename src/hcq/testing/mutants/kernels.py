"""Breakages of portable kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hcq.kernels.frontend.source import Source
from hcq.testing.breakages import breaks, changed

if TYPE_CHECKING:
    from hcq.testing.mutants.devices import Context


@breaks("portable.errors", "test_a_mistake_in_a_kernel_is_shown_where_it_stands")
def lines_of_kernels_count_from_the_function() -> Context:
    def within(locate: Any) -> Any:
        return lambda source, node, inlined_at=None: locate(_moved(source), node, inlined_at)

    return changed(Source, "locate", within)


def _moved(source: Source) -> Source:
    return Source(source.name, source.file, 1, source.column, source.text, source.tree)
