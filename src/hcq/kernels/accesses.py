"""Which buffers a kernel reads and writes, and whether a launch provably leaves one.

A proof is a witness: a work-item, and rounds of the loops around, for which everything that decides whether the access
happens and where can be computed before the launch, and where the element does not exist. Witnesses are looked for at
the extremes: the first and last item, those beside where a condition turns, the first and last round. So nothing that
works is ever refused. What does not live here: what commands do to memory in general (graph, validation).
"""

from __future__ import annotations

import itertools
import linecache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hcq.errors import LaunchError
from hcq.kernels import arithmetic as exact
from hcq.kernels import ir, types
from hcq.kernels.arithmetic import evaluator
from hcq.kernels.pointers import Origins, root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hcq.kernels.ir import Block, Function, Op, Value
    from hcq.queues.launch import Dims

_MOST_ACCESSES: Final = 64
_MOST_POINTS: Final = 256  # of an access; some 3 us each
_MOST_TOGETHER: Final = 4096  # of a launch
_KEPT: Final = 1024
_LEAVING: Final = frozenset({"break", "continue", "return"})

Axis = tuple[str, int]
"""What a work-item is told apart by: an id and a dimension."""


class Guard(NamedTuple):
    """A condition on the way to an access, and what it must be."""

    condition: Value
    wanted: bool


class Round(NamedTuple):
    """A counted loop around an access. `once`: only its first round is sure to run."""

    op: Op
    once: bool


class Access(NamedTuple):
    """A load, store or atomic operation on a buffer, that follows from ids, rounds and arguments alone."""

    op: Op
    buffer: int
    places: tuple[Value, ...]  # the index and the offsets of the pointer: their sum is the element
    lanes: int
    guards: tuple[Guard, ...]
    rounds: tuple[Round, ...]


class Bounds:
    """What a kernel does to the memory of its buffers. Threads may share it."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.access_words = access_words(function)
        self._tests: list[_Test] | None = None
        self._relevant: tuple[int, ...] = ()
        self._good: set[Any] = set()

    def check(self, groups: Dims, items: Dims, sizes: Sequence[int], values: Sequence[bool | int | float]) -> None:
        """Raises LaunchError where a launch provably leaves a buffer. `sizes` in elements."""
        tests = self._found()
        if not tests or 0 in groups:
            return
        key = (groups, items, *sizes, *[values[at] for at in self._relevant])
        if key in self._good:
            return
        rounded = [
            exact.rounder(types.element_of(each.type))(float(value)) if types.element_of(each.type).is_float else value
            for each, value in zip(self.function.scalars, values, strict=True)
        ]
        left = _MOST_TOGETHER
        for test in tests:
            left -= test.run(groups, items, sizes, rounded, min(left, _MOST_POINTS))
        if len(self._good) >= _KEPT:
            self._good.clear()
        self._good.add(key)

    @property
    def relevant(self) -> tuple[int, ...]:
        """Which numbers of a launch, by their place, a check depends on."""
        self._found()
        return self._relevant

    def _found(self) -> list[_Test]:
        if self._tests is None:
            tests = [_Test(self.function, each) for each in _Finder(self.function).found[:_MOST_ACCESSES]]
            self._relevant = tuple(sorted({at for test in tests for at in test.arguments}))
            self._tests = tests
        return self._tests


def access_words(function: Function) -> tuple[str, ...]:
    """'r', 'w' or 'rw' for each buffer, in order; one that is not touched counts as read. What is done through a
    pointer that depends on a condition is done to each buffer that it may point into."""
    read: set[Value] = set()
    written: set[Value] = set()
    origins = Origins(function)
    for op in function.walk():
        if op.code in ("load", "atomic"):
            read |= origins.of(op.operands[0])
        if op.code in ("store", "atomic"):
            written |= origins.of(op.operands[0])
    return tuple(
        "rw" if each in read and each in written else "w" if each in written else "r" for each in function.pointers
    )


class _Finder:
    """Walks a function and gathers the accesses of which all is known."""

    def __init__(self, function: Function) -> None:
        self.buffers = {each: at for at, each in enumerate(function.pointers)}
        self.known: dict[Value, bool] = dict.fromkeys(function.scalars, True)
        self.found: list[Access] = []
        self.seen: set[Any] = set()
        self.block(function.body, (), ())

    def computable(self, value: Value) -> bool:
        """Whether a number follows from ids, rounds and arguments alone."""
        found = self.known.get(value)
        if found is None:
            op = value.op
            found = (
                op is not None
                and op.is_pure
                and op.code not in ("subgroup", "offset", "pack", "splat", "extract")
                and isinstance(value.type, types.Scalar)
                and all(map(self.computable, op.operands))
            )
            self.known[value] = found
        return found

    def block(self, block: Block, guards: tuple[Guard, ...] | None, rounds: tuple[Round, ...]) -> None:
        """`guards` None: what is here may not run, for reasons that are not known."""
        for op in block.ops:
            if op.code in ("load", "store", "atomic") and guards is not None:
                self.access(op, guards, rounds)
            elif op.code == "if":
                guards = self.branch(op, guards, rounds)
            elif op.code == "for":
                inner = op.blocks[0]
                self.known[inner.arguments[0]] = guards is not None and all(map(self.computable, op.operands[:2]))
                for each in inner.arguments[1:]:
                    self.known[each] = False
                counted = self.known[inner.arguments[0]]
                once = _leaves(inner, frozenset({"break", "return"}))
                self.block(inner, guards if counted else None, (*rounds, Round(op, once)))
                guards = None if _leaves(inner, frozenset({"return"})) else guards
            elif op.code == "loop":
                for each in op.blocks[0].arguments:
                    self.known[each] = False
                self.block(op.blocks[0], None, rounds)
                guards = None if _leaves(op.blocks[0], frozenset({"return"})) else guards

    def branch(self, op: Op, guards: tuple[Guard, ...] | None, rounds: tuple[Round, ...]) -> tuple[Guard, ...] | None:
        """An `if`; what holds after it."""
        condition = op.operands[0]
        sure = guards is not None and self.computable(condition)
        after = guards
        for wanted, block in zip((True, False), op.blocks, strict=True):
            inside = (*guards, Guard(condition, wanted)) if sure and guards is not None else None
            self.block(block, inside, rounds)
            if not _leaves(block, _LEAVING):
                continue
            if sure and after is not None and block.ops[-1].code in _LEAVING and not _leaves_within(block):
                after = (*after, Guard(condition, not wanted))
            else:
                after = None
        return after

    def access(self, op: Op, guards: tuple[Guard, ...], rounds: tuple[Round, ...]) -> None:
        pointer, offsets = root(op.operands[0])
        buffer = self.buffers.get(pointer)
        places = (op.operands[1], *offsets)
        if buffer is None or not all(map(self.computable, places)):
            return
        value = op.operands[2] if op.code == "store" else op.results[0]
        lanes = value.type.lanes if isinstance(value.type, types.Vector) else 1
        key = (buffer, places, lanes, guards, rounds)
        if key not in self.seen:
            self.seen.add(key)
            self.found.append(Access(op, buffer, places, lanes, guards, rounds))


def _leaves(block: Block, codes: frozenset[str]) -> bool:
    """Whether a block may end what is around it. A loop inside takes its own break and continue."""
    for op in block.ops:
        if op.code in codes:
            return True
        inner = codes & {"return"} if op.code in ("for", "loop") else codes
        if any(_leaves(each, inner) for each in op.blocks):
            return True
    return False


def _leaves_within(block: Block) -> bool:
    """Whether it may leave elsewhere than at its end."""
    return any(
        _leaves(inner, _LEAVING & {"return"} if op.code in ("for", "loop") else _LEAVING)
        for op in block.ops
        for inner in op.blocks
    )


class _Test:
    """Looks for a witness that one access leaves its buffer."""

    def __init__(self, function: Function, access: Access) -> None:
        self.function = function
        self.access = access
        self.steps: dict[Value, tuple[Callable[..., Any], tuple[Value, ...]]] = {}
        self.constants: dict[Value, Any] = {}
        self.ids: dict[Value, Axis] = {}
        self.turns: list[Op] = []  # comparisons that decide whether the access happens
        scalars = {each: at for at, each in enumerate(function.scalars)}
        self.arguments: dict[int, Value] = {}
        needed = [*access.places, *(each.condition for each in access.guards)]
        for each in access.rounds:
            needed += each.op.operands[:2]
        indices = {each.op.blocks[0].arguments[0] for each in access.rounds}
        done: set[Value] = set()

        def visit(value: Value) -> None:
            if value in done or value in indices:
                return
            done.add(value)
            if value in scalars:
                self.arguments[scalars[value]] = value
                return
            op = value.op
            assert op is not None
            for operand in op.operands:
                visit(operand)
            if op.code == "const":
                self.constants[value] = op.attributes["value"]
            elif op.code == "id":
                self.ids[value] = (op.attributes["kind"], op.attributes["dim"])
            else:
                of = op.operands[1 if op.code == "select" else 0].type
                self.steps[value] = (evaluator(op.code, of, value.type), tuple(op.operands))
                if op.code in ir.COMPARISONS:
                    self.turns.append(op)

        for value in needed:
            visit(value)
        self.axes = self._axes()

    def _axes(self) -> list[Axis]:
        """What items differ by, as far as this access is concerned."""
        kinds = set(self.ids.values())
        axes: list[Axis] = []
        for dim in range(3):
            parts: list[Axis] = [(kind, dim) for kind in ("group_id", "local_id") if (kind, dim) in kinds]
            if ("global_id", dim) in kinds:
                parts = [("group_id", dim), ("local_id", dim)] if parts else [("global_id", dim)]
            axes += parts
        return axes

    def run(
        self, groups: Dims, items: Dims, sizes: Sequence[int], values: Sequence[bool | int | float], most: int
    ) -> int:
        """Raises LaunchError where there is a witness among the first `most` work-items; else how many were tried."""
        size = sizes[self.access.buffer]
        base: dict[Value, Any] = dict(self.constants)
        for at, value in self.arguments.items():
            base[value] = values[at]
        counts = {"group_id": groups, "local_id": items, "global_id": _times(groups, items)}
        lengths = [counts[kind][dim] for kind, dim in self.axes]
        candidates = [{0, length - 1} for length in lengths]
        corners = [tuple(0 for _ in lengths), tuple(length - 1 for length in lengths)]
        for place in range(len(lengths)):
            candidates[place] |= self._turning(place, lengths, corners, groups, items, base)
        axes = [_ends_first(each) for each in candidates]
        tried = 0
        for point in itertools.islice(itertools.product(*axes), most):
            tried += 1
            env = self._env(point, groups, items, base)
            for _ in self._rounds(env, 0):
                if not all(self._value(each.condition, env) is each.wanted for each in self.access.guards):
                    continue
                element = sum(self._value(each, env) for each in self.access.places)
                if element < 0 or element + self.access.lanes > size:
                    raise self._error(element, size, point)
        return tried

    def _env(self, point: Sequence[int], groups: Dims, items: Dims, base: dict[Value, Any]) -> dict[Value, Any]:
        """What is known of one work-item."""
        where = dict(zip(self.axes, point, strict=True))
        env = dict(base)
        for value, (kind, dim) in self.ids.items():
            if kind == "global_id":
                whole = where.get(("global_id", dim))
                if whole is None:
                    whole = where.get(("group_id", dim), 0) * items[dim] + where.get(("local_id", dim), 0)
                env[value] = whole
            elif kind in ("group_id", "local_id"):
                env[value] = where[kind, dim]
            else:
                counts = items if kind == "local_size" else groups if kind == "num_groups" else _times(groups, items)
                env[value] = counts[dim]
        return env

    def _turning(
        self,
        place: int,
        lengths: Sequence[int],
        corners: Sequence[tuple[int, ...]],
        groups: Dims,
        items: Dims,
        base: dict[Value, Any],
    ) -> set[int]:
        """Places on one axis beside which a comparison changes, were both its sides straight lines."""
        found: set[int] = set()
        for corner in corners:
            for op in self.turns:
                heights: list[Any] = []
                for at in (0, 1):
                    point = (*corner[:place], at, *corner[place + 1 :])
                    env = self._env(point, groups, items, base)
                    next(self._rounds(env, 0), None)
                    sides: list[Any] = [self._value(each, env) for each in op.operands]
                    heights.append(None if None in sides else sides[0] - sides[1])
                if None in heights or heights[0] == heights[1]:
                    continue
                turn = heights[0] / (heights[0] - heights[1])
                if abs(turn) < 2.0**40:
                    near = int(turn)
                    found |= {each for each in (near - 1, near, near + 1) if 0 <= each < lengths[place]}
        return found

    def _rounds(self, env: dict[Value, Any], depth: int) -> Iterator[None]:
        """Sets the indices of the loops around to their first and last values, one after the other."""
        if depth == len(self.access.rounds):
            yield
            return
        op, once = self.access.rounds[depth]
        index = op.blocks[0].arguments[0]
        start, stop = (self._value(each, env) for each in op.operands[:2])
        if start is None or stop is None:
            return
        whole = range(start, stop, op.attributes["step"])
        for value in dict.fromkeys((whole[0], whole[0] if once else whole[-1])) if whole else ():
            env[index] = value
            self._forget(env, index)
            yield from self._rounds(env, depth + 1)

    def _forget(self, env: dict[Value, Any], index: Value) -> None:
        """Drops what was computed, since an index changed."""
        for value in self.steps:
            env.pop(value, None)

    def _value(self, value: Value, env: dict[Value, Any]) -> Any:
        """A number of one work-item; None where an index that it needs is not set."""
        found = env.get(value)
        if found is None and value in self.steps:
            compute, operands = self.steps[value]
            given = [self._value(each, env) for each in operands]
            if None in given:
                return None
            found = env[value] = compute(*given)
        return found

    def _error(self, element: int, size: int, point: Sequence[int]) -> LaunchError:
        op, function = self.access.op, self.function
        name = function.pointers[self.access.buffer].name
        does = {"load": "reads", "store": "writes"}.get(op.code, "changes")
        who = ", ".join(f"{kind}({dim}) = {at}" for (kind, dim), at in zip(self.axes, point, strict=True))
        text = f"{function.name}: {op.location or function.name} {does} element {element} of {name}, which has {size}"
        text += f", where {who}" if who else ""
        if op.location is not None:
            line = linecache.getline(op.location.file, op.location.line).rstrip("\n")
            if line:
                text += f"\n{line.expandtabs(1)}\n{' ' * (op.location.column - 1)}^"
        return LaunchError(f"{text}\nlaunch fewer work-items, compare the index with a length, or pass a longer buffer")


def _ends_first(places: set[int]) -> list[int]:
    """The least and the largest, then what is between."""
    ordered = sorted(places)
    return [ordered[0], *reversed(ordered[1:])]


def _times(groups: Dims, items: Dims) -> Dims:
    return groups[0] * items[0], groups[1] * items[1], groups[2] * items[2]
