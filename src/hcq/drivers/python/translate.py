"""A kernel as a Python function: one statement an operation, Python's own control flow.

The function is a generator that runs one work-item. It yields where items meet (a barrier, a shuffle) and is sent what
a shuffle gives it. What does not live here: what it calls - arithmetic (hcq.kernels.arithmetic), memory and ids (run).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hcq.errors import InvalidProgram
from hcq.kernels import types
from hcq.kernels.arithmetic import evaluator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hcq.kernels.ir import Block, Function, Op, Value

_EXACT: Final = {"add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "neg": "-{}"}
_PLACE_DEPTH: Final = 90
"""Python's compiler takes blocks a hundred deep."""


def translate(function: Function) -> Callable[..., Any]:
    """`kernel(item, *parameters)`, in the order of the function's parameters; pointers are (array, index) pairs."""
    return _Translator(function).function_object()


def index_chain(function: Function) -> set[Op]:
    """The integer operations that add up to an index: they must not overflow."""
    chain: set[Op] = set()
    todo = [op.operands[1] for op in function.walk() if op.code in ("load", "store", "atomic", "offset")]
    while todo:
        op = todo.pop().op
        if op is None or op in chain:
            continue
        if op.code in _EXACT or (op.code == "cast" and types.element_of(op.operands[0].type).is_integer):
            chain.add(op)
            todo.extend(op.operands)
    return chain


class _Translator:
    def __init__(self, function: Function) -> None:
        self.function = function
        self.chain = index_chain(function)
        self.names: dict[Value, str] = {}
        self.scope: dict[str, Any] = {}
        self.bound: dict[Any, str] = {}

    def function_object(self) -> Callable[..., Any]:
        parameters = ", ".join(["item", *(self.name(each) for each in self.function.parameters)])
        body = list(self.block(self.function.body, "    ", []))
        text = "\n".join([f"def kernel({parameters}):", *body, "    yield"])
        try:
            exec(compile(text, f"<kernel {self.function.name}>", "exec"), self.scope)
        except (SyntaxError, RecursionError, MemoryError) as error:
            raise InvalidProgram(f"kernel {self.function.name} is nested too deep for PYTHON: {error}") from error
        made: Callable[..., Any] = self.scope["kernel"]
        return made

    def name(self, value: Value) -> str:
        return self.names.setdefault(value, f"v{len(self.names)}")

    def bind(self, key: Any, value: Any) -> str:
        """A name of the function's scope for an object that it uses."""
        if key not in self.bound:
            self.bound[key] = f"g{len(self.bound)}"
            self.scope[self.bound[key]] = value
        return self.bound[key]

    def block(self, block: Block, indent: str, carried: list[list[str]]) -> Iterator[str]:
        """The statements of a block. `carried` holds for each construct around it the names its values go to."""
        if len(indent) > 4 * _PLACE_DEPTH:
            raise InvalidProgram(f"kernel {self.function.name} is nested too deep for PYTHON")
        for op in block.ops:
            if op.code in ("if", "for", "loop"):
                yield from getattr(self, f"on_{op.code}")(op, indent, carried)
            elif op.code in ("yield", "continue", "break", "return"):
                yield from self.leave(op, indent, carried)
            else:
                yield indent + self.statement(op)

    def on_if(self, op: Op, indent: str, carried: list[list[str]]) -> Iterator[str]:
        results = [self.name(each) for each in op.results]
        yield f"{indent}if {self.name(op.operands[0])}:"
        for number, branch in enumerate(op.blocks):
            if number:
                yield f"{indent}else:"
            yield from self.block(branch, indent + "    ", [*carried, results])

    def on_for(self, op: Op, indent: str, carried: list[list[str]]) -> Iterator[str]:
        index, *arguments = op.blocks[0].arguments
        names = [self.name(each) for each in arguments]
        yield from self.assign(names, op.operands[2:], indent)
        bounds = ", ".join(self.name(each) for each in op.operands[:2])
        yield f"{indent}for {self.name(index)} in range({bounds}, {op.attributes['step']}):"
        self.names.update(zip(op.results, names, strict=True))
        yield from self.block(op.blocks[0], indent + "    ", [*carried, ["loop"], names, names])

    def on_loop(self, op: Op, indent: str, carried: list[list[str]]) -> Iterator[str]:
        names = [self.name(each) for each in op.blocks[0].arguments]
        results = [self.name(each) for each in op.results]
        yield from self.assign(names, op.operands, indent)
        yield f"{indent}while True:"
        yield from self.block(op.blocks[0], indent + "    ", [*carried, ["loop"], names, results])

    def leave(self, op: Op, indent: str, carried: list[list[str]]) -> Iterator[str]:
        if op.code == "return":
            yield f"{indent}return"
        elif op.code == "yield":
            yield from self.assign(carried[-1], op.operands, indent)
            yield f"{indent}pass"
        else:
            loop = max(place for place, each in enumerate(carried) if each == ["loop"])
            names = carried[loop + (1 if op.code == "continue" else 2)]
            yield from self.assign(names, op.operands, indent)
            yield f"{indent}{op.code}"

    def assign(self, names: list[str], values: list[Value], indent: str) -> Iterator[str]:
        """All at once, since values may be what others of the names had."""
        if names:
            yield f"{indent}{', '.join(names)} = {', '.join(self.name(each) for each in values)}"

    def statement(self, op: Op) -> str:
        operands = [self.name(each) for each in op.operands]
        value = self.expression(op, operands)
        return f"{self.name(op.result)} = {value}" if op.results else value

    def expression(self, op: Op, operands: list[str]) -> str:
        if op in self.chain:
            value = _EXACT.get(op.code, "{}").format(*operands)
            low, high = types.element_of(op.result.type).range
            return f"item.exact({value}, {low}, {high}, {self.bind(op, op)})"
        simple = getattr(self, f"on_{op.code}", None)
        if simple is not None:
            text: str = simple(op, operands)
            return text
        operand = op.operands[1 if op.code == "select" else 0].type
        function = evaluator(op.code, operand, op.result.type)
        return f"{self.bind((op.code, operand, op.result.type), function)}({', '.join(operands)})"

    def on_const(self, op: Op, operands: list[str]) -> str:
        value = op.attributes["value"]
        return self.bind(op, value) if isinstance(value, float) else repr(value)

    def on_id(self, op: Op, operands: list[str]) -> str:
        return f"item.{op.attributes['kind']}[{op.attributes['dim']}]"

    def on_pack(self, op: Op, operands: list[str]) -> str:
        return f"({', '.join(operands)},)"

    def on_splat(self, op: Op, operands: list[str]) -> str:
        kind = op.result.type
        assert isinstance(kind, types.Vector)
        return f"({operands[0]},) * {kind.lanes}"

    def on_extract(self, op: Op, operands: list[str]) -> str:
        return f"{operands[0]}[{op.attributes['lane']}]"

    def on_local(self, op: Op, operands: list[str]) -> str:
        return f"item.group.array({self.bind(op, op)})"

    def on_private(self, op: Op, operands: list[str]) -> str:
        return f"item.array({self.bind(op, op)})"

    def on_offset(self, op: Op, operands: list[str]) -> str:
        return f"({operands[0]}[0], {operands[0]}[1] + {operands[1]})"

    def on_load(self, op: Op, operands: list[str]) -> str:
        kind = op.result.type
        if isinstance(kind, types.Vector):
            return f"item.load_vector({', '.join(operands)}, {kind.lanes}, {self.bind(op, op)})"
        return f"item.load({', '.join(operands)}, {self.bind(op, op)})"

    def on_store(self, op: Op, operands: list[str]) -> str:
        wide = isinstance(op.operands[2].type, types.Vector)
        return f"item.store{'_vector' if wide else ''}({', '.join(operands)}, {self.bind(op, op)})"

    def on_atomic(self, op: Op, operands: list[str]) -> str:
        return f"item.atomic({', '.join(operands)}, op={self.bind(op, op)})"

    def on_barrier(self, op: Op, operands: list[str]) -> str:
        return f"yield {self.bind(op, op)}, None, None"

    def on_shuffle(self, op: Op, operands: list[str]) -> str:
        return f"yield {self.bind(op, op)}, {', '.join(operands)}"

    def on_subgroup(self, op: Op, operands: list[str]) -> str:
        return f"item.subgroup_{op.attributes['kind']}"
