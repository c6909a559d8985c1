"""A set of byte ranges: which bytes of an allocation were ever written.

What does not live here: who reads and writes (memory).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class Intervals:
    """Disjoint half-open ranges, in order, none touching the next."""

    def __init__(self) -> None:
        self._first: list[int] = []
        self._last: list[int] = []

    def add(self, first: int, last: int) -> None:
        """Put `first` to `last - 1` in."""
        if first >= last:
            return
        low, high = bisect_left(self._last, first), bisect_right(self._first, last)
        if low < high:
            first, last = min(first, self._first[low]), max(last, self._last[high - 1])
        self._first[low:high] = [first]
        self._last[low:high] = [last]

    def covers(self, first: int, last: int) -> bool:
        """Whether all of `first` to `last - 1` is in."""
        at = bisect_right(self._first, first) - 1
        return first >= last or (at >= 0 and self._last[at] >= last)

    def within(self, first: int, last: int) -> list[tuple[int, int]]:
        """The ranges that lie in `first` to `last - 1`, cut off at its ends."""
        low, high = bisect_right(self._last, first), bisect_left(self._first, last)
        return [(max(f, first), min(t, last)) for f, t in zip(self._first[low:high], self._last[low:high], strict=True)]
