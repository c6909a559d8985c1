"""A PTX module as one module of LLVM IR: globals, functions, kernels, and what is told of them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from hcq.cudacpu.lower import layout
from hcq.cudacpu.lower.emitter import quoted
from hcq.cudacpu.lower.forms.analysis import Facts, facts_of, mentioned, register_types
from hcq.cudacpu.lower.forms.frames import Place
from hcq.cudacpu.lower.forms.gathering import gathered
from hcq.cudacpu.lower.values.nans import unsettled
from hcq.cudacpu.ptx.errors import OtherTarget, PtxError, Unsupported
from hcq.cudacpu.ptx.nodes import Function, Module, Variable

_GLOBALS = ("global", "const")  # the spaces of variables that a module has for itself


@dataclass(frozen=True, slots=True)
class Options:
    """What the translation is told of the device."""

    capability: int = 0  # 90 is 9.0; 0: any
    multiprocessors: int = 16
    check: bool = False
    memory: int = 0  # bytes for variables; 0: enough
    regions: bool = False  # kernels with barriers of the whole block only become regions (llvm-grid.md)
    external: bool = False  # the module's variables are in another object


@dataclass(frozen=True, slots=True)
class Kernel:
    """An entry. `params` are (offset, size, alignment); sizes are in bytes.

    `kind` says how it is called (abi.hpp): "loop", "threads", or "regions": then it is in `Translated.regions`, and has
    to go through the LLVM device's lowering first. Dynamic shared memory begins at `shared`, `local` is
    what a thread needs.
    """

    name: str
    symbol: str
    kind: str
    params: tuple[tuple[int, int, int], ...]
    param_bytes: int
    shared: int
    local: int
    maxntid: tuple[int, ...] = ()
    reqntid: tuple[int, ...] = ()
    minnctapersm: int = 0
    line: int = 0
    registers: int = 0
    accesses: bytes = b""  # as accesses.py has them

    @property
    def max_threads(self) -> int:
        """Threads of a block that the kernel was compiled for at most; 0 where it doesn't say."""
        sizes = self.reqntid or self.maxntid
        total = 1 if sizes else 0
        for each in sizes:
            total *= each
        return total

    @property
    def required(self) -> tuple[int, int, int] | None:
        """The shape of block that it must be launched with, if it says one."""
        return (*self.reqntid, 1, 1)[:3] if self.reqntid else None  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Global:
    """A variable of the module that a program can find."""

    name: str
    symbol: str
    size: int
    align: int
    space: str


@dataclass(frozen=True, slots=True)
class Translated:
    """LLVM IR, and what it holds."""

    llvm_ir: str
    kernels: tuple[Kernel, ...]
    globals: tuple[Global, ...]
    regions: str = ""  # LLVM IR of the kernels of that kind
    version: tuple[int, int] = (0, 0)
    target: tuple[str, ...] = field(default=())


class Unit:
    """The LLVM module that is being written."""

    def __init__(self, module: Module, options: Options, regions: bool = False) -> None:
        self.module = module
        self.options = options
        self.regions = regions  # whether it is the module of the kernels that become regions
        self.facts: dict[str, Facts] = facts_of(module)
        self.functions: dict[str, Function] = {f.name: f for f in module.functions}
        self._meeting: dict[str, Function | None] = {}
        self._types: dict[str, dict[str, str]] = {}
        self._unsettled: dict[str, frozenset[str]] = {}
        self._declarations: dict[str, None] = {}
        self._helpers: dict[str, str] = {}
        self._metadata: list[str] = ["!0 = !{}"]
        self._marks: dict[int, str] = {}
        self._variables = {v.name: v for v in module.variables}

    def kind(self, function: Function) -> str:
        """How a kernel is called (abi.hpp)."""
        facts = self.facts[function.name]
        if facts.suspends:
            return "regions" if self.options.regions and (facts.whole or self._gathered(function)) else "threads"
        # Where threads go round loops, these may go round together, with a vector of threads in each step.
        return "regions" if facts.loops and self.options.regions else "loop"

    def _gathered(self, function: Function) -> Function | None:
        """The kernel as regions have it, if its threads meet wherever it suspends."""
        if function.name not in self._meeting:
            facts = self.facts[function.name]
            others = any(self.facts[name].suspends for name in facts.calls if name in self.facts)
            self._meeting[function.name] = None if others or facts.yields else gathered(function)
        return self._meeting[function.name]

    def translate(self) -> Translated:
        """Write everything. Raises PtxError and Unsupported, with the line."""
        from hcq.cudacpu.lower.forms.functions import device_function, kernel

        globals_, head = self._globals()
        texts: list[str] = []
        kernels: list[Kernel] = []
        for function in self.module.functions:
            if function.body is None:
                continue
            if function.entry:
                if (self.kind(function) == "regions") != self.regions:
                    continue
                text, made = kernel(self, self._meeting.get(function.name) or function)
                kernels.append(made)
                texts.append(text)
            elif not self.facts[function.name].inline:
                texts.append(device_function(self, function))
        parts = [*head, *texts, *self._helpers.values(), *self._declarations, ATTRIBUTES, *self._metadata]
        text = "\n".join(parts) + "\n"
        return Translated(text, tuple(kernels), globals_, "", self.module.version, self.module.target)

    # -- for emitters ---------------------------------------------------------------------------------------------

    def declare(self, text: str) -> None:
        """A declaration, once."""
        self._declarations[text] = None

    def helper(self, name: str, text: str) -> None:
        """A function of the module, once."""
        self._helpers.setdefault(name, text)

    def metadata(self, text: str) -> str:
        """A node of metadata; returns its name. `%self` in the text stands for it."""
        name = f"!{len(self._metadata)}"
        self._metadata.append(f"{name} = {text.replace('%self', name)}")
        return name

    def mark(self, line: int) -> str:
        """What tells at an instruction which line of the PTX it was made of; see hcq.cudacpu.debug."""
        if line not in self._marks:
            self._marks[line] = f", !hcq.line {self.metadata(f'!{{i32 {line}}}')}"
        return self._marks[line]

    def types(self, function: Function) -> dict[str, str]:
        """LLVM's types for registers that were declared by width only."""
        if function.name not in self._types:
            self._types[function.name] = register_types(function)
        return self._types[function.name]

    def unsettled(self, function: Function) -> frozenset[str]:
        """Registers of f32 whose NaNs get their bits when they are read."""
        if function.name not in self._unsettled:
            self._unsettled[function.name] = unsettled(function, self.types(function))
        return self._unsettled[function.name]

    def place(self, name: str) -> Place | None:
        """A variable of the module in space global or const."""
        variable = self._variables.get(name)
        if variable is None or variable.space not in _GLOBALS:
            return None
        return Place(variable.space, symbol(name))

    def function(self, name: str) -> Function | None:
        """A function of the module, by any of its names."""
        return self.functions.get(self.module.aliases.get(name, name))

    def address_of_function(self, name: str) -> str | None:
        """LLVM's name of a device function or kernel whose address is taken."""
        function = self.function(name)
        if function is None or function.body is None:
            return None
        if not function.entry and self.facts[function.name].inline:
            raise PtxError(f"the address of {name} is taken, which has to be written into its callers", function.line)
        return symbol(function.name)

    # -- globals --------------------------------------------------------------------------------------------------

    def _globals(self) -> tuple[tuple[Global, ...], list[str]]:
        found: list[Global] = []
        lines: list[str] = []
        for each in _globals_of(self.module):
            if each.linkage == "extern":
                raise PtxError(f"{each.name} is declared .extern, and no module defines it", each.line)
            align = layout.alignment(each)
            type, value = layout.initialiser(self, each)
            if self.regions or self.options.external:
                lines.append(f"{symbol(each.name)} = external global {type}, align {max(align, 16)}")
            else:
                lines.append(f"{symbol(each.name)} = global {type} {value}, align {max(align, 16)}")
            found.append(Global(each.name, symbol(each.name)[1:].strip('"'), layout.bytes_of(each), align, each.space))
        return tuple(found), lines


ATTRIBUTES = "attributes #0 = { nounwind null_pointer_is_valid }"


def symbol(name: str) -> str:
    """LLVM's name of what PTX calls so: apart from those of the process's own libraries."""
    return f"@{quoted('ptx.' + name)}"


def _globals_of(module: Module) -> list[Variable]:
    return [each for each in module.variables if each.space in _GLOBALS]


def _check_target(module: Module, capability: int) -> None:
    """sm_90 runs on 9.0 and later; sm_90a on 9.0 alone; sm_100f on those of its family, 10.x."""
    if module.address_size != 64:
        raise Unsupported(f".address_size {module.address_size}: addresses have 64 bits", module.lines["address_size"])
    match = re.fullmatch(r"sm_(\d+)([af]?)", module.target[0] if module.target else "")
    if match is None or not capability:
        return
    wanted, kind = int(match[1]), match[2]
    if {"a": capability == wanted, "f": wanted <= capability < wanted // 10 * 10 + 10}.get(kind, capability >= wanted):
        return
    device = f"{capability // 10}.{capability % 10}"
    why = f"the module is for {module.target[0]}, the device has compute capability {device} (see HCQ_CUDACPU_CC)"
    raise OtherTarget(why, module.lines["target"])


def variables_of(module: Module) -> Module | None:
    """A module with the variables of another one alone; None where one of them holds the address of a function."""
    functions = {each.name for each in module.functions} | module.aliases.keys()
    held = {i.symbol.name for each in _globals_of(module) for i in each.elements if i.symbol is not None}
    return None if held & functions else replace(module, functions=[])


def kernel_of(module: Module, name: str) -> Module:
    """A module with one kernel of another one, and the functions that it may come to."""
    functions = {each.name: each for each in module.functions}
    found: dict[str, None] = {}
    todo = [name]
    while todo:
        each = module.aliases.get(todo[-1], todo[-1])
        todo.pop()
        if each in functions and each not in found:
            found[each] = None
            todo += mentioned(functions[each])
    return replace(module, functions=[each for each in module.functions if each.name in found])


def translate(module: Module, options: Options | None = None) -> Translated:
    """A parsed module as LLVM IR. Raises PtxError, and Unsupported for what is not run here, with the line."""
    chosen = options or Options()
    _check_target(module, chosen.capability)
    bytes_of = {space: sum(layout.bytes_of(v) for v in _globals_of(module) if v.space == space) for space in _GLOBALS}
    layout.check_space("the module", "const", bytes_of["const"])
    layout.check_room(sum(bytes_of.values()), chosen.memory)
    translated = Unit(module, chosen).translate()
    if not chosen.regions:
        return translated
    more = Unit(module, chosen, regions=True).translate()
    if not more.kernels:
        return translated
    return replace(translated, kernels=(*translated.kernels, *more.kernels), regions=more.llvm_ir)
