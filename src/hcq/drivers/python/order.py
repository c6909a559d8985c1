"""Which work-items touch the same memory with nothing to order them.

Two items of one group are ordered by a barrier between what they do; items of different groups by nothing. Groups run
one after the other, and the items of a group in turn between barriers, so that the last accesses tell enough. What does
not live here: order between launches and copies (hcq.validation).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hcq.drivers.python.run import Item


class _Element:
    """What was done to one element: by whom last, and at which barrier count of the group."""

    __slots__ = ("atomic", "epoch", "foreign_reader", "foreign_writer", "readers", "shared", "writer")

    def __init__(self) -> None:
        self.writer: Item | None = None
        self.epoch = 0
        self.atomic = False
        self.shared = False  # several items wrote it, by atomic operations, since the last barrier
        self.foreign_writer: Item | None = None
        self.foreign_reader: Item | None = None
        self.readers: dict[Item, int] = {}  # of one group


class Order:
    """The accesses to one piece of memory in one launch. `unit` is the size in bytes that they are told apart by."""

    __slots__ = ("elements", "unit")

    def __init__(self, unit: int) -> None:
        self.unit = unit
        self.elements: dict[int, _Element] = {}

    def read(self, item: Item, start: int, size: int) -> Item | None:
        """Note that `item` reads bytes; returns an item that wrote them without order, or None."""
        for key in range(start // self.unit, (start + size - 1) // self.unit + 1):
            element = self.elements.get(key)
            if element is None:
                element = self.elements[key] = _Element()
            other = self._unordered_writer(element, item, atomic=False)
            if other is not None:
                return other
            first = next(iter(element.readers), None)
            if first is not None and first.group is not item.group:
                element.foreign_reader = first
                element.readers.clear()
            element.readers[item] = item.group.epoch
        return None

    def write(self, item: Item, start: int, size: int, atomic: bool) -> Item | None:
        """Note that `item` writes bytes; returns an item that read or wrote them without order, or None."""
        for key in range(start // self.unit, (start + size - 1) // self.unit + 1):
            element = self.elements.get(key)
            if element is None:
                element = self.elements[key] = _Element()
            other = self._unordered_writer(element, item, atomic) or self._unordered_reader(element, item)
            if other is not None:
                return other
            previous = element.writer
            if previous is not None and previous.group is not item.group:
                element.foreign_writer = previous
                element.shared = False
            elif element.epoch == item.group.epoch and previous is not None:
                element.shared = element.shared or previous is not item
            else:
                element.shared = False
            element.writer, element.epoch, element.atomic = item, item.group.epoch, atomic
            element.readers.clear()
        return None

    def _unordered_writer(self, element: _Element, item: Item, atomic: bool) -> Item | None:
        writer = element.writer
        if writer is None or (atomic and element.atomic):
            return None
        if element.foreign_writer is not None:
            return element.foreign_writer
        if writer.group is not item.group:
            return writer
        if element.epoch < item.group.epoch or (writer is item and not element.shared):
            return None
        return writer

    def _unordered_reader(self, element: _Element, item: Item) -> Item | None:
        if element.foreign_reader is not None:
            return element.foreign_reader
        for reader, epoch in element.readers.items():
            if reader is not item and (reader.group is not item.group or epoch >= item.group.epoch):
                return reader
        return None
