"""One launch on a PYTHON device: groups one after the other, their items in turn from barrier to barrier.

Every access is checked: inside the memory, of bytes that were written, ordered against other items'. What does not live
here: the kernel's own statements (translate), arithmetic (hcq.kernels.arithmetic).
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, Final, NoReturn

from hcq.drivers.python.order import Order
from hcq.errors import DivergenceError, OutOfBoundsError, RaceError, UnwrittenReadError, ValidationError
from hcq.kernels import types
from hcq.kernels.arithmetic import decode, encode, evaluator

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from hcq.drivers.python.memory import Block, Blocks
    from hcq.kernels.ir import Function, Op
    from hcq.kernels.types import Scalar

    Dims = tuple[int, int, int]
    Pointer = tuple["Array", int]

SUBGROUP: Final = 32
"""How many neighbouring items form a sub-group."""


class Array:
    """Elements that a pointer can reach: a buffer from the address given on, a local or a private array."""

    __slots__ = ("count", "data", "name", "order", "start", "type", "written")

    def __init__(
        self, name: str, type_: Scalar, data: Any, written: bytearray, start: int, count: int, order: Order | None
    ) -> None:
        self.name = name
        self.type = type_
        self.data = data
        self.written = written
        self.start = start
        self.count = count
        self.order = order


class Group:
    """One work-group: its local arrays, and how many barriers it has passed."""

    def __init__(self, launch: Launch, number: Dims) -> None:
        self.launch = launch
        self.number = number
        self.epoch = 0
        self.arrays: dict[Op, Array] = {}

    def array(self, op: Op) -> Pointer:
        if op not in self.arrays:
            self.arrays[op] = _own_array(op, Order(types.element_of(op.result.type).itemsize))
        return self.arrays[op], 0


class Item:
    """One work-item: its ids, and what the kernel calls to touch memory."""

    def __init__(self, group: Group, local: Dims, linear: int) -> None:
        launch = group.launch
        self.group = group
        self.local_id = local
        self.group_id = group.number
        self.local_size = launch.items
        self.num_groups = launch.groups
        self.global_id = tuple(g * n + i for g, n, i in zip(group.number, launch.items, local, strict=True))
        self.global_size = tuple(g * n for g, n in zip(launch.groups, launch.items, strict=True))
        self.subgroup_size = SUBGROUP
        self.subgroup_lane = linear % SUBGROUP
        self.subgroup_index = linear // SUBGROUP

    def fail(self, op: Op, error: type[ValidationError], what: str) -> NoReturn:
        place = f"{op.location}: " if op.location else ""
        sites = ((op.location.file, op.location.line),) if op.location else ()
        name = self.group.launch.function.name
        raise error(f"{place}{what}, in work-item {self.local_id} of group {self.group_id} of {name}", sites)

    def exact(self, value: int, low: int, high: int, op: Op) -> int:
        """A part of an index that its type must hold."""
        if not low <= value <= high:
            kind = types.element_of(op.result.type)
            self.fail(op, OutOfBoundsError, f"the index overflows: {value} is no {kind}; compute it in i64")
        return value

    def array(self, op: Op) -> Pointer:
        """A private array. An item comes here once for each: they stand at the top."""
        return _own_array(op, None), 0

    def place(self, pointer: Pointer, index: int, count: int, op: Op) -> tuple[Array, int]:
        """The array, and the byte where `count` elements from `index` on begin. Checks that they are inside."""
        array, first = pointer
        at = first + index
        if at < 0 or at + count > array.count:
            worst = at if at < 0 else at + count - 1
            what = f"{array.name}[{worst}] is outside its {array.count} elements"
            self.fail(op, OutOfBoundsError, what)
        return array, array.start + at * array.type.itemsize

    def load(self, pointer: Pointer, index: int, op: Op) -> Any:
        return self._read(*self.place(pointer, index, 1, op), index + pointer[1], op)

    def load_vector(self, pointer: Pointer, index: int, lanes: int, op: Op) -> tuple[Any, ...]:
        array, at = self.place(pointer, index, lanes, op)
        size, first = array.type.itemsize, index + pointer[1]
        return tuple(self._read(array, at + lane * size, first + lane, op) for lane in range(lanes))

    def store(self, pointer: Pointer, index: int, value: Any, op: Op) -> None:
        self._write(*self.place(pointer, index, 1, op), index + pointer[1], value, op)

    def store_vector(self, pointer: Pointer, index: int, value: tuple[Any, ...], op: Op) -> None:
        array, at = self.place(pointer, index, len(value), op)
        for lane, each in enumerate(value):
            self._write(array, at + lane * array.type.itemsize, index + pointer[1] + lane, each, op)

    def atomic(self, pointer: Pointer, index: int, value: Any, expected: Any = None, *, op: Op) -> Any:
        array, at = self.place(pointer, index, 1, op)
        size, how = array.type.itemsize, op.attributes["how"]
        self._ordered(array, at, index + pointer[1], op, "changes", atomic=True)
        self._was_written(array, at, index + pointer[1], op)
        old = decode(bytes(array.data[at : at + size]), array.type)
        if how == "cas":
            new = value if encode(old, array.type) == encode(expected, array.type) else old
        else:
            new = value if how == "exchange" else evaluator(how, array.type, array.type)(old, value)
        array.data[at : at + size] = encode(new, array.type)
        return old

    def _read(self, array: Array, at: int, index: int, op: Op) -> Any:
        size = array.type.itemsize
        if array.order is not None:
            other = array.order.read(self, at, size)
            if other is not None:
                self._raced(array, index, op, other, "reads")
        self._was_written(array, at, index, op)
        return decode(bytes(array.data[at : at + size]), array.type)

    def _write(self, array: Array, at: int, index: int, value: Any, op: Op) -> None:
        size = array.type.itemsize
        self._ordered(array, at, index, op, "writes", atomic=False)
        array.data[at : at + size] = encode(value, array.type)
        array.written[at : at + size] = b"\1" * size

    def _ordered(self, array: Array, at: int, index: int, op: Op, verb: str, atomic: bool) -> None:
        if array.order is not None:
            other = array.order.write(self, at, array.type.itemsize, atomic)
            if other is not None:
                self._raced(array, index, op, other, verb)

    def _was_written(self, array: Array, at: int, index: int, op: Op) -> None:
        if 0 in array.written[at : at + array.type.itemsize]:
            self.fail(op, UnwrittenReadError, f"reads {array.name}[{index}], which nothing has written")

    def _raced(self, array: Array, index: int, op: Op, other: Item, verb: str) -> NoReturn:
        where = f"work-item {other.local_id}" + (
            " too" if other.group is self.group else f" of group {other.group_id} too"
        )
        remedy = (
            "a barrier between, or an atomic operation" if other.group is self.group else "atomic operations by both"
        )
        what = f"{verb} {array.name}[{index}], which {where} touches in no order with it ({remedy} would do)"
        self.fail(op, RaceError, what)


class Launch:
    """One launch of a kernel. Runs in the thread that calls `run`."""

    def __init__(
        self, blocks: Blocks, function: Function, kernel: Callable[..., Any], groups: Dims, items: Dims
    ) -> None:
        self.blocks = blocks
        self.function = function
        self.kernel = kernel
        self.groups = groups
        self.items = items

    def run(self, addresses: list[int], values: list[Any]) -> None:
        """Run every group. `addresses` are those of the pointers, `values` the scalars. Raises ValidationErrors."""
        arrays, rest = iter(self._arrays(addresses)), iter(values)
        parameters = [
            (next(arrays), 0) if isinstance(each.type, types.Pointer) else next(rest)
            for each in self.function.parameters
        ]
        for z, y, x in itertools.product(*map(range, reversed(self.groups))):
            self._run_group(Group(self, (x, y, z)), parameters)

    def _arrays(self, addresses: list[int]) -> Iterator[Array]:
        units: dict[int, int] = {}
        found: list[tuple[Block, int]] = []
        for parameter, address in zip(self.function.pointers, addresses, strict=True):
            block = self.blocks.at(address)
            if block is None:
                raise OutOfBoundsError(
                    f"{self.function.name}: {parameter.name} points to {address:#x}, which is no memory of this device"
                )
            size = types.element_of(parameter.type).itemsize
            # Elements of several sizes or alignments in one block are told apart by their greatest common part.
            units[block.address] = math.gcd(units.get(block.address, 0), size, address - block.address)
            found.append((block, address - block.address))
        orders = {address: Order(unit) for address, unit in units.items()}
        for parameter, (block, start) in zip(self.function.pointers, found, strict=True):
            type_ = types.element_of(parameter.type)
            count = (block.size - start) // type_.itemsize
            yield Array(parameter.name, type_, block.data, block.written, start, count, orders[block.address])

    def _run_group(self, group: Group, parameters: list[Any]) -> None:
        x, y, z = self.items
        members = [Item(group, (number % x, number // x % y, number // (x * y)), number) for number in range(x * y * z)]
        running = [self.kernel(each, *parameters) for each in members]
        parts = [slice(at, at + SUBGROUP) for at in range(0, len(members), SUBGROUP)]
        while True:
            stops: list[Op | None] = []
            for part in parts:
                stops += self._run_subgroup(members[part], running[part])
            if all(stop is None for stop in stops):
                return
            self._meet(members, stops)
            group.epoch += 1

    def _run_subgroup(self, members: list[Item], running: list[Generator[Any, Any, None]]) -> list[Op | None]:
        """Run neighbours up to a barrier or their end, meeting at shuffles. Gives each one's barrier, or None."""
        answers: list[Any] = [None] * len(members)
        while True:
            reached: list[Any] = []
            for kernel, answer in zip(running, answers, strict=True):
                try:
                    reached.append(kernel.send(answer))
                except StopIteration:
                    reached.append(None)
            stops = [each[0] if each is not None else None for each in reached]
            if not any(stop is not None and stop.code == "shuffle" for stop in stops):
                return stops
            self._meet(members, stops)
            answers = [self._shuffled(members, reached, place) for place in range(len(members))]

    def _shuffled(self, members: list[Item], reached: list[Any], place: int) -> Any:
        op, _, lane = reached[place]
        how = op.attributes["how"]
        source = {"index": lane, "xor": place ^ lane, "up": place - lane, "down": place + lane}[how]
        # Outside the sub-group the result is undefined: an item's own value is as good as any.
        return reached[source][1] if 0 <= source < len(members) else reached[place][1]

    def _meet(self, members: list[Item], stops: list[Op | None]) -> None:
        """All items must have come to the same place."""
        first = next(place for place, stop in enumerate(stops) if stop is not None)
        op = stops[first]
        assert op is not None
        for member, stop in zip(members, stops, strict=True):
            if stop is not op:
                went = f"came to {stop.code} at {stop.location}" if stop is not None else "returned"
                what = f"not all work-items come to this {op.code}: {member.local_id} {went}"
                members[first].fail(op, DivergenceError, what)


def _own_array(op: Op, order: Order | None) -> Array:
    """A local or private array, of which nothing is written yet."""
    type_, count = types.element_of(op.result.type), op.attributes["count"]
    size = count * type_.itemsize
    return Array(op.attributes["name"], type_, bytearray(size), bytearray(size), 0, count, order)
