"""A kernel in the C family: its values as variables, its memory as arrays, the function around them.

One writer for all dialects (dialects). A vector is as many variables as it has elements; compilers put neighbours
together again. What does not live here: control flow (flow), expressions (ops), helper functions (prelude).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from hcq.errors import CompileError
from hcq.kernels import types
from hcq.kernels.lower.blocks import PARTS
from hcq.kernels.lower.c.flow import Flow
from hcq.kernels.lower.c.ops import Expressions
from hcq.kernels.lower.c.prelude import STORED
from hcq.kernels.lower.names import entry_name, is_free
from hcq.kernels.types import Pointer, Vector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.kernels.ir import Function, Op, Value
    from hcq.kernels.lower.c.dialects import Dialect

_WRAP: Final = {"add": "+", "sub": "-", "mul": "*"}


def write(function: Function, dialect: Dialect) -> str:
    """The text of one kernel. Its parameters are the function's pointers, then its scalars."""
    return Writer(function, dialect).text()


class Writer(Flow):
    """Writes one function."""

    def __init__(self, function: Function, dialect: Dialect) -> None:
        super().__init__(function, dialect)
        self.x = Expressions(self.p)

    # The function

    def text(self) -> str:
        inputs = (*self.function.pointers, *self.function.scalars)
        parameters = [self.parameter(number, each) for number, each in enumerate(inputs)]
        passed = [_declared(each) for each in parameters]
        in_loops = self.d.is_on_processor and not any(op.code == "barrier" for op in self.function.walk())
        ids: list[tuple[str, int]] = []
        for kind, dim in self.wanted_ids():
            if in_loops:
                ids += [(part, dim) for part in PARTS.get(kind, (kind,)) if (part, dim) not in ids]
                self.ids.update({each: f"{each[0]}_{each[1]}" for each in ids})
            self.id(kind, dim)
        self.block(self.function.body)
        while self.lines and self.lines[-1] == "  return;":
            self.lines.pop()
        name = entry_name(self.function.name)
        head = f"{self.d.kernel} {name}({', '.join([*parameters, *self.d.inputs])}) {{"
        if in_loops:
            return self.grouped(name, parameters, passed, ids, head)
        return "\n".join([self.d.head + self.p.text(), head, *self.lines, "}", ""])

    def grouped(
        self, name: str, parameters: list[str], passed: list[str], ids: Sequence[tuple[str, int]], head: str
    ) -> str:
        """A kernel without barriers whose first item runs the whole group, in loops that compilers make vectors of.

        Items are unordered, but nothing says so to the compiler: what it then forgets is also the order within an item,
        and that items do not share their private arrays.
        """
        i32 = self.p.word("i32")
        own = [*parameters, *(f"{i32} {kind}_{dim}" for kind, dim in ids)]
        item = f"static inline __attribute__((always_inline)) void {name}_item({', '.join(own)}) {{"
        kept = [(kind, dim) for kind, dim in ids if kind != "local_id"]
        kept += [("local_size", dim) for dim in range(3) if ("local_size", dim) not in kept]
        sizes = [f"  {i32} {kind}_{dim} = {self.d.ids[kind].format(dim)};" for kind, dim in kept]
        loops = [
            f"{'  ' * (3 - dim)}for ({i32} local_id_{dim} = 0; local_id_{dim} < local_size_{dim}; local_id_{dim}++)"
            for dim in (2, 1, 0)
        ]
        call = f"        {name}_item({', '.join([*passed, *(f'{kind}_{dim}' for kind, dim in ids)])});"
        first = f"  if (({' | '.join(self.d.ids['local_id'].format(dim) for dim in range(3))}) != 0) return;"
        body = [head, first, "  hcq_group_done_();", *sizes, *loops, call, "}", ""]
        return "\n".join([self.d.head + self.p.text(), item, *self.lines, "}", "", *body])

    def parameter(self, number: int, value: Value) -> str:
        """Declares a parameter; what must be made of it stands at the head of the body."""
        element = types.element_of(value.type)
        ours = re.search(r"_\d+$", value.name)  # so variables of this writer end
        name = value.name if is_free(value.name) and not ours else self.name(value.name)
        place = self.d.tail.format(number)
        if isinstance(value.type, Pointer):
            self.names[value] = [name]
            return f"{self.spelled(value)}{name}{place}"
        spelled = self.d.boolean_parameter if element is types.bool_ else self.p.word(STORED.get(element, element.name))
        self.names[value] = [name]
        if (element is types.bool_ and spelled != self.d.boolean) or element in (types.f16, types.bf16):
            self.define(value, [self.x.from_memory(name, element)])
        self.widen(value)
        if self.d.scalars_by_reference:
            return f"constant {spelled} &{name}{place}"
        return f"{spelled} {name}"

    def new_id(self, kind: str, dim: int, parts: Sequence[str]) -> str:
        name = f"{kind}_{dim}"
        text = " + ".join([" * ".join(parts[:2]), *parts[2:]]) or self.d.ids[kind].format(dim, "xyz"[dim])
        self.line(f"{self.p.word('i32')} {name} = {text};")
        return name

    def value(self, op: Op) -> None:
        result = op.result
        source, element = types.element_of(op.operands[0].type), types.element_of(result.type)
        lanes = result.type.lanes if isinstance(result.type, Vector) else 1
        given = [self.names[each] for each in op.operands]
        texts = []
        for lane in range(lanes):
            operands = [names[lane if len(names) > 1 else 0] for names in given]
            texts.append(self.x.write(op.code, source, element, operands))
        self.define(result, texts)

    def index(self, op: Op, operands: Sequence[str]) -> str:
        i64 = self.p.word("i64")
        if op.code == "neg":
            operands = ["0", *operands]
        sign = _WRAP.get(op.code, "-")
        text = f" {sign} ".join(operands)
        if op.result.type is types.u64:
            self.p.word("u64")
            text = f"(i64)({f' {sign} '.join(f'(u64){each}' for each in operands)})"
        name = self.name(op.result.name or "at")
        self.line(f"{i64} {name} = {text};")
        return name

    # Values and memory

    def on_const(self, op: Op) -> None:
        element = types.element_of(op.result.type)
        self.names[op.result] = [self.x.literal(op.attributes["value"], element)]
        if op.result in self.needs.wide:
            self.wide[op.result] = self.p.whole(op.attributes["value"], types.i64)

    def on_id(self, op: Op) -> None:
        self.names[op.result] = [self.id(op.attributes["kind"], op.attributes["dim"])]
        self.widen(op.result)

    def on_pack(self, op: Op) -> None:
        self.names[op.result] = [self.names[each][0] for each in op.operands]

    def on_splat(self, op: Op) -> None:
        lanes = op.result.type.lanes if isinstance(op.result.type, Vector) else 1
        self.names[op.result] = self.names[op.operands[0]] * lanes

    def on_extract(self, op: Op) -> None:
        self.names[op.result] = [self.names[op.operands[0]][op.attributes["lane"]]]
        self.widen(op.result)

    def on_local(self, op: Op) -> None:
        name = self.name(op.attributes["name"])
        stored = self.p.stored(types.element_of(op.result.type))
        self.line(f"{self.d.arrays[op.code]}{stored} {name}[{op.attributes['count']}];")
        self.names[op.result] = [name]

    on_private = on_local

    def place(self, op: Op, lane: int = 0) -> str:
        """The element that an operation on memory names."""
        index = self.wide[op.operands[1]].removeprefix("(i64)")
        return f"{self.names[op.operands[0]][0]}[{index}{f' + {lane}' if lane else ''}]"

    def on_offset(self, op: Op) -> None:
        self.define(op.result, [f"{self.names[op.operands[0]][0]} + {self.wide[op.operands[1]]}"])

    def on_load(self, op: Op) -> None:
        element = types.element_of(op.result.type)
        lanes = op.result.type.lanes if isinstance(op.result.type, Vector) else 1
        self.define(op.result, [self.x.from_memory(self.place(op, lane), element) for lane in range(lanes)])

    def on_store(self, op: Op) -> None:
        value = op.operands[2]
        element = types.element_of(value.type)
        for lane, name in enumerate(self.names[value]):
            self.line(f"{self.place(op, lane)} = {self.x.to_memory(name, element)};")

    def on_atomic(self, op: Op) -> None:
        how, pointer = op.attributes["how"], op.operands[0]
        if not isinstance(pointer.type, Pointer):
            raise CompileError(f"atomic works on memory, not on {pointer.type}")
        element, space = pointer.type.element, pointer.type.space
        at = f"{self.names[pointer][0]} + {self.wide[op.operands[1]].removeprefix('(i64)')}"
        values = [self.names[each][0] for each in op.operands[2:]]
        native = self.d.fetch.get(f"{how}_{element.name}") or (None if element.is_float else self.d.fetch.get(how))
        if native:
            text = native.format(at, *values, space=self.d.spaces[space], type=self.p.word(element.name))
        else:
            raw = self.p.pointer(types.scalar(f"u{element.bits}"), space)
            there = f"({raw})({at})" if element.kind != "u" else at
            text = f"{self.p.atomic(how, element, space)}({there}, {', '.join(values)})"
        if op.result in self.needs.plain or op.result in self.needs.wide:
            self.define(op.result, [text])
        else:
            self.line(f"{text};")

    def on_barrier(self, op: Op) -> None:
        self.line(self.d.barrier)

    def on_subgroup(self, op: Op) -> None:
        self.define(op.result, [self.d.subgroup[op.attributes["kind"]]])

    def on_shuffle(self, op: Op) -> None:
        (value,), (lane,) = (self.names[each] for each in op.operands)
        self.define(op.result, [self.d.shuffle[op.attributes["how"]].format(value, lane)])


def _declared(parameter: str) -> str:
    """The name in a parameter's declaration."""
    return re.split(r"[ *]", parameter)[-1]
