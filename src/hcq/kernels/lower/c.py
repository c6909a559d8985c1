"""A kernel in the C family: its control flow as statements, its values as variables, its memory as arrays.

One writer for all dialects (dialects). A vector is as many variables as it has elements; compilers put neighbours
together again. What does not live here: expressions (c_ops), helper functions (c_prelude).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from hcq.errors import CompileError
from hcq.kernels import types
from hcq.kernels.accesses import access_words
from hcq.kernels.lower.blocks import PARTS, BlockWriter
from hcq.kernels.lower.c_ops import Expressions
from hcq.kernels.lower.c_prelude import STORED, Prelude
from hcq.kernels.lower.names import entry_name, is_free
from hcq.kernels.pointers import Origins
from hcq.kernels.types import Pointer, Vector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.kernels.ir import Block, Function, Op, Value
    from hcq.kernels.lower.dialects import Dialect

_WRAP: Final = {"add": "+", "sub": "-", "mul": "*"}


def write(function: Function, dialect: Dialect) -> str:
    """The text of one kernel. Its parameters are the function's pointers, then its scalars."""
    return Writer(function, dialect).text()


class _Loop:
    """The loop that is being written: the variables it carries, and those of its results (the same, of a `for`)."""

    __slots__ = ("carried", "is_left", "results")

    def __init__(self, carried: list[list[str]], results: list[list[str]]) -> None:
        self.carried, self.results = carried, results
        self.is_left = False


class Writer(BlockWriter[list[str], str]):
    """Writes one function. `names` are each value's variables, one an element; `wide` those of indices, an i64."""

    def __init__(self, function: Function, dialect: Dialect) -> None:
        super().__init__(function)
        self.d = dialect
        self.p = Prelude(dialect)
        self.x = Expressions(self.p)
        self.lines: list[str] = []
        self.indent = "  "
        self.loops: list[_Loop] = []
        self.results: list[Sequence[Value]] = []
        self.count = 0
        words = zip(function.pointers, access_words(function), strict=True)
        self.only_read = {each for each, word in words if word == "r"}
        self.origins = Origins(function)

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

    # Lines and names

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def name(self, hint: str) -> str:
        self.count += 1
        return f"{re.sub(r'^[^A-Za-z]+|[^A-Za-z0-9]', '', hint) or 'v'}_{self.count}"

    def spelled(self, value: Value) -> str:
        if isinstance(value.type, Pointer):
            # What is only read says so: the CPU devices' libraries record it, and compilers may use it.
            const = "const " if self.origins.of(value) <= self.only_read else ""
            return const + self.p.pointer(value.type.element, value.type.space)
        return self.p.held(types.element_of(value.type)) + " "

    def declare(self, value: Value, texts: Sequence[str] | None = None) -> list[str]:
        """Variables for a value, one an element, with their first values if there are any."""
        lanes = value.type.lanes if isinstance(value.type, Vector) else 1
        name, spelled = self.name(value.name), self.spelled(value)
        names = [name] if lanes == 1 else [f"{name}_{lane}" for lane in range(lanes)]
        for each, text in zip(names, texts or [""] * lanes, strict=True):
            self.line(f"{spelled}{each}{' = ' if text else ''}{text};")
        return names

    def define(self, value: Value, texts: Sequence[str]) -> None:
        self.names[value] = self.declare(value, texts)
        self.widen(value)

    def widen(self, value: Value) -> None:
        """Names the index of a value that is there as it is; C converts it where it is used."""
        if value in self.needs.wide:
            self.p.word("i64")
            self.wide[value] = f"(i64){self.names[value][0]}"

    def passed(self, value: Value) -> list[str]:
        """The variables of a value that others are set to."""
        return [self.unqualified(value, each) for each in self.names[value]]

    def unqualified(self, value: Value, text: str) -> str:
        """A pointer without its const, which it may lose where ways meet; anything else as it is."""
        if not isinstance(value.type, Pointer) or self.origins.of(value).isdisjoint(self.only_read):
            return text
        return f"({self.p.pointer(value.type.element, value.type.space)}){text}"

    def assign(self, targets: Sequence[list[str]], values: Sequence[Value]) -> None:
        """Assigns values to variables all at once: through others where one is read after it is written."""
        pairs: list[tuple[str, str]] = []
        written: list[str] = []
        for places, value in zip(targets, values, strict=True):
            for name, source, text in zip(places, self.names[value], self.passed(value), strict=True):
                if name == source:
                    continue
                if source in written:
                    kept = self.name("next")
                    self.line(f"{self.spelled(value)}{kept} = {text};")
                    text = self.unqualified(value, kept)
                pairs.append((name, text))
                written.append(name)
        for name, text in pairs:
            self.line(f"{name} = {text};")

    # Blocks

    def inner(self, block: Block) -> bool:
        self.indent += "  "
        left = self.block(block)
        self.indent = self.indent[:-2]
        return left

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

    # Control flow

    def on_if(self, op: Op) -> bool:
        targets = [self.declare(each) for each in op.results]
        self.results.append(op.results)
        for result, names in zip(op.results, targets, strict=True):
            self.names[result] = names
        self.line(f"if ({self.names[op.operands[0]][0]}) {{")
        left = self.inner(op.blocks[0])
        mark = len(self.lines)
        self.line("} else {")
        left = self.inner(op.blocks[1]) and left
        if len(self.lines) == mark + 1:
            self.lines.pop()
        self.line("}")
        self.results.pop()
        for each in op.results:
            self.widen(each)
        return left

    def on_yield(self, op: Op) -> bool:
        self.assign([self.names[each] for each in self.results[-1]], op.operands)
        return True

    def enter(self, arguments: Sequence[Value], initial: Sequence[Value]) -> list[list[str]]:
        """The variables that a loop carries."""
        carried = []
        for value, first in zip(arguments, initial, strict=True):
            self.names[value] = self.declare(value, self.passed(first))
            carried.append(self.names[value])
            self.widen(value)
        return carried

    def on_loop(self, op: Op) -> bool:
        (block,) = op.blocks
        results = [self.declare(each) for each in op.results]
        carried = self.enter(block.arguments, op.operands)
        self.line("for (;;) {")
        return self.round(op, carried, results)

    def on_for(self, op: Op) -> bool:
        """Python's range. An index of up to 32 bits runs in 64, where nothing overflows; one of 64 bits, in steps other
        than 1, runs beside a count of the rounds that are left."""
        (block,) = op.blocks
        index, step = block.arguments[0], op.attributes["step"]
        element = types.element_of(index.type)
        (start,), (stop,) = (self.names[each] for each in op.operands[:2])
        carried = self.enter(block.arguments[1:], op.operands[2:])
        at, sign, by = self.name(index.name or "i"), "<" if step > 0 else ">", f"{abs(step)}"
        move = f"{at} {'+' if step > 0 else '-'}= {by}"
        if element.bits == 64 and abs(step) != 1:
            t, u64, left = self.p.word(element.name), self.p.word("u64"), self.name("left")
            low, high = (start, stop) if step > 0 else (stop, start)
            self.line(f"{u64} {left} = {low} < {high} ? (({u64}){high} - ({u64}){low} - 1) / {by} + 1 : 0;")
            self.line(f"{t} {at} = {start};")
            moved = f"{at} = ({t})(({u64}){at} {'+' if step > 0 else '-'} {by})"
            self.line(f"for (; {left} != 0; {left}--, {moved}) {{")
        else:
            wide = self.p.word(element.name if element.bits == 64 else "i64")
            end = stop
            if not re.fullmatch(r"[\d]+", stop):
                end = self.name("stop")
                self.line(f"{wide} {end} = {stop};")
            self.line(f"for ({wide} {at} = {start}; {at} {sign} {end}; {move}) {{")
        self.names[index], self.wide[index] = [at], at
        if element.bits < 64 and index in self.needs.plain:
            self.indent += "  "
            self.names[index] = self.declare(index, [f"({self.p.word(element.name)}){at}"])
            self.indent = self.indent[:-2]
        return self.round(op, carried, carried)

    def round(self, op: Op, carried: list[list[str]], results: list[list[str]]) -> bool:
        """The body of a loop, and what follows it: its results."""
        self.loops.append(_Loop(carried, results))
        outer, self.results = self.results, []
        self.inner(op.blocks[0])
        if self.lines[-1] == f"{self.indent}  continue;":
            self.lines.pop()
        self.results = outer
        loop = self.loops.pop()
        self.line("}")
        for result, names in zip(op.results, results, strict=True):
            self.names[result] = names
            self.widen(result)
        return op.code == "loop" and not loop.is_left

    def on_continue(self, op: Op) -> bool:
        self.assign(self.loops[-1].carried, op.operands)
        self.line("continue;")
        return True

    def on_break(self, op: Op) -> bool:
        loop = self.loops[-1]
        self.assign(loop.results, op.operands)
        self.line("break;")
        loop.is_left = True
        return True

    def on_return(self, op: Op) -> bool:
        self.line("return;")
        return True


def _declared(parameter: str) -> str:
    """The name in a parameter's declaration."""
    return re.split(r"[ *]", parameter)[-1]
