"""What every part of the translation shares: the function being built, the frame of the Python function being read,
names, and errors. What does not live here: expressions, calls, statements (the modules of these names).
"""

from __future__ import annotations

import builtins
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hcq.kernels import ir, types
from hcq.kernels.frontend import source as sources
from hcq.kernels.frontend.returns import RESULT
from hcq.kernels.frontend.values import Array, Missing, Weak, is_constant, is_dynamic, is_pointer, numpy_scalar, same
from hcq.kernels.ir import Block, Location, Op, Value

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator, Sequence
    from types import FunctionType

    from hcq.errors import CompileError
    from hcq.kernels.frontend.plans import Loop
    from hcq.kernels.frontend.source import Source


class Frame:
    """One Python function while it is read: its names, and where it was called."""

    def __init__(self, function: FunctionType, source: Source, inlined_at: Location | None, kernel: bool) -> None:
        self.function = function
        self.source = source
        self.inlined_at = inlined_at
        self.kernel = kernel
        self.env: dict[str, Any] = {}
        self.loops: list[Loop] = []
        self.depth = 0  # branches and loops around, that are decided when the kernel runs
        closure = function.__closure__ or ()
        self.cells = dict(zip(function.__code__.co_freevars, closure, strict=True))


class Emitter(ir.Builder):
    """A builder that gives each operation the place of the syntax node being read."""

    def __init__(self, block: Block) -> None:
        super().__init__(block)
        self.node: ast.AST | None = None
        self.frame: Frame | None = None
        self.count = 0
        self._last: tuple[ast.AST | None, Frame | None] = (None, None)

    def op(
        self,
        code: str,
        operands: Sequence[Value] = (),
        results: Sequence[types.Type] = (),
        blocks: Sequence[Block] = (),
        **attributes: Any,
    ) -> Op:
        frame, node = self.frame, self.node
        if frame is not None and node is not None and (node, frame) != self._last:
            self._last = (node, frame)
            self.location = frame.source.locate(node, frame.inlined_at)
        self.count += 1
        return super().op(code, operands, results, blocks, **attributes)


class Core:
    """A translation in progress. Subclasses add expressions, calls and statements."""

    function: ir.Function
    frame: Frame
    build: Emitter
    limit: int
    """How many operations a kernel may become."""

    def __init__(self) -> None:
        self.arrays: list[Op] = []  # local and private: they stand at the top of the outermost block
        self.stack: list[FunctionType] = []
        self.blocks = self.rounds = 0  # how deep the block is that is written now, and in how many loops
        self.unsettled = 0  # how often a Weak was used as a type that it may not come to have

    # What subclasses bring

    def expr(self, node: ast.expr) -> Any:
        """The value of an expression."""
        raise NotImplementedError

    def statements(self, nodes: Sequence[ast.stmt]) -> bool:
        """Translates statements; False where nothing can follow them."""
        raise NotImplementedError

    def assign(self, target: ast.expr, value: Any) -> None:
        """`target = value`."""
        raise NotImplementedError

    # Errors

    def error(self, node: ast.AST, message: str, hint: str = "") -> CompileError:
        """The exception for a mistake in `node`."""
        return sources.refusal(self.locate(node), message, hint, self.frame.source.text)

    def locate(self, node: ast.AST) -> Location:
        return self.frame.source.locate(node, self.frame.inlined_at)

    def missing(self, node: ast.AST, name: str, value: Missing) -> CompileError:
        """The exception for reading a variable that has no value."""
        hint = value.hint
        if value.location is not None:
            hint = f"{value.location}: here\n{hint}" if hint else f"{value.location}: here"
        shown = "what the function returns" if name.startswith(RESULT) else name
        return self.error(node, value.why.replace("{name}", shown), hint)

    # Names

    def name(self, node: ast.Name) -> Any:
        """What a name stands for: a variable, or a constant of the Python program."""
        name = node.id
        frame = self.frame
        if name in frame.env:
            value = frame.env[name]
            if isinstance(value, Missing):
                raise self.missing(node, name, value)
            return value
        if name in frame.source.locals:
            raise self.error(node, f"{name} has no value here", f"give {name} a value before this line")
        found: Any
        if name in frame.cells:
            try:
                found = frame.cells[name].cell_contents
            except ValueError:
                raise self.error(node, f"{name} of the function around has no value yet") from None
        elif name in frame.function.__globals__:
            found = frame.function.__globals__[name]
        elif hasattr(builtins, name):
            found = getattr(builtins, name)
        else:
            raise self.error(node, f"there is no name {name}")
        return self.constant(found)

    def constant(self, found: Any) -> Any:
        """An object of the Python program as a value of the kernel: a NumPy scalar keeps its type."""
        scalar = numpy_scalar(found)
        if scalar is None:
            return found
        type_, number = scalar
        return number if type_.kind == "b" else self.build.const(number, type_)

    # Blocks

    @contextmanager
    def inside(self, block: Block, loop: bool = False) -> Iterator[None]:
        """Operations go into `block`; variables set there are those of a copy. The caller ends it."""
        for what, depth, most in (("blocks", self.blocks, ir.MAX_DEPTH), ("loops", self.rounds, ir.MAX_LOOPS)):
            if depth >= most and (loop or what == "blocks") and self.build.node is not None:
                hint = "move a part to a kernel of its own, or look values up in a table"
                raise self.error(self.build.node, f"{what} are nested deeper than {most}", hint)
        outer, env = self.build.block, self.frame.env
        self.blocks += 1
        self.rounds += loop
        self.build.block = block
        self.frame.env = dict(env)
        try:
            yield
        finally:
            self.build.block = outer
            self.frame.env = env
            self.blocks -= 1
            self.rounds -= loop

    def leave(self) -> None:
        """Ends a block that nothing reaches the end of."""
        block = self.build.block
        if not block.ops or block.ops[-1].code not in ir.TERMINATORS:
            self.build.op("return")

    def static_int(self, node: ast.AST, value: Any, what: str) -> int:
        """A whole number that is known while compiling."""
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, Value) and value.op is not None and value.op.code == "const":
            number = value.op.attributes["value"]
            if isinstance(number, int) and not isinstance(number, bool):
                return number
        raise self.error(
            node,
            f"{what} must be a whole number that is known when the kernel is compiled",
            "write a number, a name from outside the kernel, or a parameter n: hcq.constexpr",
        )


class Join:
    """Values of variables that several ways bring together: which types they get, and what each way passes on."""

    def __init__(self, core: Core, ways: int, node: ast.AST, visible: Sequence[Any] | None = None) -> None:
        """`visible` are the values that exist where the ways meet. None: the ways part from one place, so that a value
        which two of them have is older than both."""
        self.visible = visible
        self.core = core
        self.node = node
        self.passed: list[list[Any]] = [[] for _ in range(ways)]
        self.types: list[types.Type] = []
        self.names: list[str] = []

    def add(self, name: str, values: Sequence[Any], before: Any = None) -> Any:
        """What `name` is afterwards: a constant that all agree on, a `_Slot` (of a result), a Missing, or a tuple."""
        first = values[0]
        if all(same(first, each) for each in values) and (first is before or self._exists(first, len(values))):
            return first
        absent = next((each for each in values if isinstance(each, Missing)), None)
        if absent is not None:
            return absent
        if all(isinstance(each, tuple) and len(each) == len(first) for each in values):
            return tuple(self.add(name, [each[i] for each in values]) for i in range(len(first)))
        if any(not _is_plain(each) for each in values):
            return self._pointer(name, values)
        type_ = self._type(values)
        if type_ is None:
            shown = " and ".join(dict.fromkeys(_type_name(each) for each in values))
            return Missing(
                f"{{name}} is {shown}, depending on a condition",
                f"convert it where it is set, such as {name} = hcq.f32(...)",
                self.core.locate(self.node),
            )
        return self._slot(name, type_, values)

    def _exists(self, value: Any, ways: int) -> bool:
        """Whether a value that all ways have exists where they meet."""
        if not is_dynamic(value):
            return True
        if self.visible is None:
            return ways > 1
        return any(value is each for each in self.visible)

    def _pointer(self, name: str, values: Sequence[Any]) -> Any:
        """Pointers into one kind of memory, to one type; arrays stay arrays where their shapes are the same."""
        if len(values) == 1 and self._is_outermost(values[0]):
            return values[0]
        places = [each.pointer if isinstance(each, Array) else each for each in values]
        if all(is_pointer(each) for each in places):
            kinds = dict.fromkeys(each.type for each in places)
            if len(kinds) == 1:
                slot = self._slot(name, places[0].type, places)
                shapes = {each.shape if isinstance(each, Array) else None for each in values}
                (shape,) = shapes if len(shapes) == 1 else (None,)
                return slot if shape is None else Array(slot, shape)
            return Missing(
                f"{{name}} is {' and '.join(map(str, kinds))}, depending on a condition",
                "a pointer that depends on a condition has one type, into one kind of memory",
                self.core.locate(self.node),
            )
        return Missing(
            "{name} depends on a condition, which only numbers and pointers can",
            f"give {name} its value outside the condition, or make the condition a constant",
            self.core.locate(self.node),
        )

    def _is_outermost(self, value: Any) -> bool:
        """A parameter or an array, which every block sees; anything that is no value of the kernel."""
        pointer = value.pointer if isinstance(value, Array) else value
        if not isinstance(pointer, Value):
            return True
        if pointer.op is None:  # or what a loop carries
            return any(pointer is each for each in self.core.function.parameters)
        return pointer.op.code in ("local", "private")

    def _slot(self, name: str, type_: types.Type, values: Sequence[Any]) -> _Slot:
        self.types.append(type_)
        self.names.append(name)
        for passed, value in zip(self.passed, values, strict=True):
            passed.append(value)
        weak = any(isinstance(each, Weak) for each in values) and not any(isinstance(each, Value) for each in values)
        return _Slot(len(self.types) - 1, weak)

    def _type(self, values: Sequence[Any]) -> types.Type | None:
        """The one type that all typed values have and the weak ones take; of weak ones alone, what they would be."""
        typed = {each.type for each in values if isinstance(each, Value)}
        weak = [each for each in values if not isinstance(each, Value)]
        if len(typed) > 1:
            return None
        if typed:
            (type_,) = typed
            element = types.element_of(type_)
            return type_ if all(_takes(each, element) for each in weak) else None
        result: types.Scalar | None = None
        for each in weak:
            own = each.type if isinstance(each, Weak) else types.of_weak(each)
            result = own if result is None else _wider(result, own)
        return result


class _Slot:
    """A result of the operation that a Join belongs to."""

    def __init__(self, index: int, weak: bool) -> None:
        self.index = index
        self.weak = weak


def filled(template: Any, results: Sequence[Value]) -> Any:
    """What a Join said a variable is, with the operation's results in place."""
    if isinstance(template, _Slot):
        result = results[template.index]
        return Weak(result) if template.weak else result
    if isinstance(template, tuple):
        return tuple(filled(each, results) for each in template)
    if isinstance(template, Array) and isinstance(template.pointer, _Slot):
        return Array(results[template.pointer.index], template.shape)
    return template


def _is_plain(value: Any) -> bool:
    return (
        is_constant(value)
        or isinstance(value, Weak)
        or (isinstance(value, Value) and not isinstance(value.type, types.Pointer))
    )


def _takes(value: Any, type_: types.Scalar) -> bool:
    """Whether a weak number becomes one of `type_` where that is what it meets."""
    try:
        return types.of_weak(value.sample if isinstance(value, Weak) else value, type_) is type_
    except OverflowError:
        return False


def _wider(a: types.Scalar, b: types.Scalar) -> types.Scalar:
    """The type of two weak numbers that meet: a Python int beside a float is a float."""
    if a.is_float or b.is_float:
        return types.f32
    return types.promote(a, b)


def _type_name(value: Any) -> str:
    return str(value.type) if isinstance(value, Value) else f"a Python {type(getattr(value, 'sample', value)).__name__}"
