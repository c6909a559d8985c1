"""Who depends on whom, by the bytes they read and write.

A command comes after the last that wrote what it reads, and after all that read, or else the last that wrote, what it
writes. What does not live here: which of these need a wait (plan).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hcq.graph.nodes import Node, Span


class _Segment:
    __slots__ = ("end", "readers", "start", "writer")

    def __init__(self, start: int, end: int, writer: Node | None, readers: list[Node]) -> None:
        self.start = start
        self.end = end
        self.writer = writer
        self.readers = readers


class Ranges:
    """Memory cut into segments, each with its last writer and who has read it since."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._by_start: dict[int, _Segment] = {}

    def add(self, node: Node) -> list[Node]:
        """Note what the node touches; returns what it comes after, each once, in the order of recording."""
        found: dict[int, Node] = {}
        for span in node.reads:
            for segment in self._over(span):
                if segment.writer is not None and segment.writer is not node:
                    found[segment.writer.index] = segment.writer
                if not segment.readers or segment.readers[-1] is not node:
                    segment.readers.append(node)
        for span in node.writes:
            touched = self._over(span)
            for segment in touched:
                if segment.readers:
                    for reader in segment.readers:
                        if reader is not node:
                            found[reader.index] = reader
                if segment.writer is not None and segment.writer is not node:
                    found[segment.writer.index] = segment.writer
                segment.writer = node
                segment.readers = []
            if len(touched) > 1:
                self._join(touched)
        for other in node.after:
            found[other.index] = other
        return [found[index] for index in sorted(found)]

    def _over(self, span: Span) -> list[_Segment]:
        start, end = span
        known = self._by_start.get(start)
        if known is not None and known.end == end:
            return [known]
        if start >= end:
            return []
        self._cut(start)
        self._cut(end)
        segments, at = [], start
        first = bisect_left(self._starts, start)
        gaps: list[_Segment] = []
        for index in range(first, bisect_left(self._starts, end)):
            segment = self._by_start[self._starts[index]]
            if segment.start > at:
                gaps.append(_Segment(at, segment.start, None, []))
            segments.append(segment)
            at = segment.end
        if at < end:
            gaps.append(_Segment(at, end, None, []))
        for gap in gaps:
            self._insert(gap)
        return segments + gaps

    def _cut(self, at: int) -> None:
        index = bisect_right(self._starts, at) - 1
        if index < 0:
            return
        segment = self._by_start[self._starts[index]]
        if segment.start < at < segment.end:
            self._insert(_Segment(at, segment.end, segment.writer, list(segment.readers)))
            segment.end = at

    def _insert(self, segment: _Segment) -> None:
        self._starts.insert(bisect_left(self._starts, segment.start), segment.start)
        self._by_start[segment.start] = segment

    def _join(self, segments: list[_Segment]) -> None:
        # What was written as a whole is one segment from now on: they don't become ever more.
        segments.sort(key=lambda segment: segment.start)
        first, last = segments[0], segments[-1]
        low = bisect_left(self._starts, first.start)
        del self._starts[low + 1 : bisect_right(self._starts, last.start)]
        for segment in segments[1:]:
            del self._by_start[segment.start]
        first.end = last.end
