"""One LLVM IR module on its way to an object: what can be launched of it, and the module that is compiled for that.

What does not live here: LLVM itself (llvm_host), which parameters there can be (llvm_parameters), how grid kernels
become loops (llvm_grid), keys and caching (compiler_llvm).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from hcq.drivers.cpu import llvm_context, llvm_host, llvm_parameters
from hcq.drivers.cpu import llvm_text as text
from hcq.drivers.cpu.library import EntryKind, Function, Param
from hcq.errors import CompileError

# What only grid kernels need is imported with the first of them: it takes longer to import than LLVM takes to compile
# a plain one.
if TYPE_CHECKING:
    from collections.abc import Callable

    from hcq.drivers.cpu.llvm_group import Lowered
    from hcq.drivers.cpu.llvm_locals import LocalArray

_LAUNCHABLE = {"external", "linkonce_any", "linkonce_odr", "weak_any", "weak_odr"}
# Patterns as text: re compiles and keeps them when they are first needed, which most modules never do.
_ATTRIBUTES = r"(attributes #\d+ = \{ )(.*)\}"
# Chosen by whoever made the IR for another processor, or in the way of inlining.
_TARGET = r'"(?:target-cpu|target-features|tune-cpu)"="[^"]*" ?'
_NOINLINE = r"\b(?:noinline|optnone)\b ?"
_COMDAT = r" comdat(?:\(\$[^)]*\))?"
_UNINITIALISED = r" global .* (?:undef|poison)(?:, .*)?$"
_ALIGN = r", align (\d+)"
_LISTS = {"@llvm.used", "@llvm.compiler.used", "@llvm.global.annotations"}  # may name kernels; they don't run
# What a function keeps of its attributes when its code moves into the group's.
_KEPT = r'strictfp|null_pointer_is_valid|"(?:prefer-vector-width|denormal-fp-math|denormal-fp-math-f32)"="[^"]*"'


class _Entry(NamedTuple):
    """A function that may be launched: what it was called, what it is renamed to, its parameters."""

    name: str
    number: int
    grid: bool
    params: tuple[Param, ...]
    types: tuple[str, ...]
    attributes: str


class Lowering:
    """One module on its way: `run` gives the module to compile, `functions` is then the library's table.

    With `groups` all functions that can be launched are what each work-item does; otherwise those that ask for what
    items have, and the rest run once. Use it holding llvm_host.LOCK. Raises CompileError.
    """

    def __init__(
        self, session: llvm_host.Session, finish: Callable[[str], str] | None = None, groups: bool = False
    ) -> None:
        self.session = session
        self.groups = groups
        self.finish = finish  # what becomes of the text of the module at last
        self.source = session.source
        self.host = llvm_host.host()
        self.functions: list[Function] = []
        self.entries: list[_Entry] = []
        self.arrays: dict[int, LocalArray] = {}  # local memory by its new name's number
        self.values: dict[int, dict[int, Any]] = {}  # of each kernel, its renamed instructions
        self.accesses: dict[str, list[str]] = {}  # of each function, what is done to the memory of each parameter

    def run(self) -> Any:
        """The module that is to be optimised and emitted."""
        module = self._clean(self._parse(self.source))
        self._check_target(module)
        self._find_arrays(module)
        grid = self._grid_functions(module)
        self._find_accesses(module)
        if grid:
            module = self._inlined(module, grid)
            grid = self._grid_functions(module)
        self._enter(module, grid)
        printed = self._rewritten(module, grid)
        return self._parse(self.finish(printed) if self.finish is not None else printed)

    def refuse(self, message: str) -> CompileError:
        """An error about the user's module."""
        return CompileError(f"LLVM IR: {message}", source=self.source)

    def _parse(self, source: str) -> Any:
        module = self.session.parse(source)
        if _architecture(module.triple) in ("", "unknown"):
            module.triple = self.host.triple
        return module

    def _clean(self, module: Any) -> Any:
        """Without the choices of processor that a front end wrote into attributes."""
        if '"target-' not in self.source and '"tune-cpu' not in self.source:
            return module
        return self._parse(_without(_TARGET, str(module)))

    def _check_target(self, module: Any) -> None:
        """The module must be for this processor, and declare nothing of hcq that there is not."""
        if _architecture(module.triple) != _architecture(self.host.triple):
            raise self.refuse(f"the module is for {module.triple}, this processor is {self.host.triple}")
        module.triple, module.data_layout = self.host.triple, self.host.layout
        for function in module.functions:
            name = function.name
            if not name.startswith("hcq."):
                continue
            known = llvm_context.DECLARATIONS
            if not function.is_declaration or name not in known:
                raise self.refuse(f"@{name} can't be used: names starting with hcq. are {', '.join(known)}")
            kind = str(function.global_value_type)
            if kind != known[name]:
                raise self.refuse(f"@{name} is declared as {kind}; it is {known[name]}")
        for item in (*module.global_variables, *module.struct_types):
            if item.name.startswith("hcq."):
                raise self.refuse(f"{item.name} can't be defined: names starting with hcq. are reserved")

    def _find_accesses(self, module: Any) -> None:
        """Notes what LLVM finds out (or was told) of the pointers that functions are given. Of a copy: the attributes
        that it adds while looking are none of this module's."""
        printed = str(module)
        copy = self.session.parse(printed)
        in_registers = ("sroa",) if " alloca " in printed else ()
        llvm_host.run_passes(copy, *in_registers, "post_order_function_attributes")
        for function in copy.functions:
            if not function.is_declaration:
                self.accesses[function.name] = [llvm_parameters.access(argument) for argument in function.arguments]

    # Grid kernels: which they are, and with everything they call inlined

    def _find_arrays(self, module: Any) -> None:
        """Renames the globals in local memory to hcq.array.N, and notes their sizes."""
        for variable in module.global_variables:
            if str(variable.type) != "ptr addrspace(3)":
                continue
            from hcq.drivers.cpu.llvm_locals import LocalArray

            name, number = variable.name, len(self.arrays)
            size = self.host.data.get_abi_size(variable.global_value_type)
            if variable.is_declaration or not size:
                raise self.refuse(f"local memory @{name} has no size here: define it, as an array of a fixed length")
            shown = str(variable)
            if not re.search(_UNINITIALISED, shown):
                raise self.refuse(f"local memory @{name} can't have an initial value: write undef")
            align = re.search(_ALIGN, shown)
            natural = self.host.data.get_abi_alignment(variable.global_value_type)
            variable.name = f"hcq.array.{number}"
            self.arrays[number] = LocalArray(name, size, int(align[1]) if align else natural)

    def _grid_functions(self, module: Any) -> dict[str, frozenset[str]]:
        """The functions that reach hcq.* or local memory, as printed, with the other such functions they mention."""
        roots = {f"@hcq.array.{number}" for number in self.arrays}
        roots.update(f"@{f.name}" for f in module.functions if f.name.startswith("hcq."))
        grid = {text.quoted(f.name) for f in module.functions if self.groups and _launchable(f)}
        if not roots and not grid:
            return {}
        mentions = {f.name: f.names for f in text.functions(str(module).split("\n"))}
        reached = roots
        while reached:
            reached = {name for name, names in mentions.items() if name not in grid and names & reached}
            grid |= reached
        return {name: mentions[name] & grid for name in grid}

    def _inlined(self, module: Any, grid: dict[str, frozenset[str]]) -> Any:
        """The module with the grid functions that others call inlined, and private variables in registers."""
        callees = frozenset[str]().union(*grid.values())
        printed = str(module)
        if not callees and " alloca " not in printed:
            return module
        module = self._parse(_without(_NOINLINE, printed))
        for function in module.functions:
            if text.quoted(function.name) in callees:
                function.add_function_attribute("alwaysinline")
        llvm_host.run_passes(module, "always_inliner", "sroa")
        return module

    # What can be launched

    def _enter(self, module: Any, grid: dict[str, frozenset[str]]) -> None:
        """Lists the functions, and renames those that can be launched, with all that is in the grid kernels."""
        for function in list(module.functions):
            if not _launchable(function):
                continue
            name = function.name
            is_grid = text.quoted(name) in grid
            kind = EntryKind.GROUP if is_grid else EntryKind.PACKED
            reason, params = llvm_parameters.parameters(function, self.accesses.get(name, ()))
            if reason:
                self.functions.append(Function(name, kind, None, reason))
                continue
            if is_grid and (inside := grid[text.quoted(name)]):
                raise self.refuse(
                    f"@{name} reaches a work-item function or local memory through {', '.join(sorted(inside))}, which "
                    "can't be inlined: it calls itself, or its address is taken"
                )
            number = len(self.entries)
            types = tuple(str(a.type) for a in function.arguments)
            attributes = " ".join(a.decode() for a in function.attributes)
            kept = " ".join(re.findall(_KEPT, attributes)) if attributes else ""
            self.entries.append(_Entry(name, number, is_grid, params, types, f"nounwind {kept}".strip()))
            function.name = f"hcq.kernel.{number}"
            function.linkage = "internal"
            function.visibility = "default"
            if is_grid:
                self.values[number] = _rename(function)
        if not self.entries:
            reasons = "; ".join(f"@{f.name}: {f.refused}" for f in self.functions)
            raise self.refuse(f"no function that could be launched ({reasons or 'none is defined'})")

    # The module that is compiled

    def _rewritten(self, module: Any, grid: dict[str, frozenset[str]]) -> str:
        lines = str(module).split("\n")
        found = text.functions(lines)
        gone = self._replaced(found, grid)
        metadata = text.Metadata(text.highest_metadata(lines))
        kernels = {f.name: lines[f.first : f.last + 1] for f in found}
        types = "\n".join(line for line in lines if line.startswith("%"))
        added: list[str] = []
        for entry in self.entries:
            scratch = (0, 0)
            if entry.grid:
                lowered = self._lowered(entry, kernels[f"@hcq.kernel.{entry.number}"], types, metadata)
                added += lowered.lines
                scratch = lowered.scratch_group, lowered.scratch_item
            function = Function(
                entry.name, EntryKind.GROUP if entry.grid else EntryKind.PACKED, entry.params, "", *scratch
            )
            self.functions.append(function)
            header = next(f for f in found if f.name == f"@hcq.kernel.{entry.number}")
            added += _wrapper(entry, function.offsets(), scratch[0], lines[header.first])
        kept: list[str] = []
        at = 0
        for f in sorted(found, key=lambda f: f.first):
            kept += self._outside(lines[at : f.first], gone)
            if f.name not in gone:
                body = lines[f.first : f.last + 1]
                if f.name.startswith("@hcq.kernel.") and " comdat" in body[0]:
                    body[0] = re.sub(_COMDAT, "", body[0])
                kept += body
            at = f.last + 1
        kept += self._outside(lines[at:], gone)
        return "\n".join([*kept, *added, *metadata.lines, ""])

    def _replaced(self, found: list[text.Function], grid: dict[str, frozenset[str]]) -> set[str]:
        """Names that are no more in the final module."""
        gone = {f"@hcq.kernel.{entry.number}" for entry in self.entries if entry.grid}
        gone.update(name for name in grid if any(f.name == name for f in found))
        gone.update(f"@hcq.array.{number}" for number in self.arrays)
        return gone | {f"@{name}" for name in llvm_context.DECLARATIONS}

    def _outside(self, lines: list[str], gone: set[str]) -> list[str]:
        """Lines between functions, without those about what is gone."""
        kept = []
        for line in lines:
            names = text.global_names(line) if "@" in line and not line.startswith(";") else set()
            if not names & gone:
                kept.append(line)
                continue
            first = line.split(" ", 1)[0]
            if first not in gone and first not in _LISTS and not line.startswith("declare "):
                shown = ", ".join(sorted(self._original(n) for n in names & gone))
                raise self.refuse(f"{first} holds the address of {shown}, which is a grid kernel or local memory")
        return kept

    def _original(self, name: str) -> str:
        for entry in self.entries:
            if name == f"@hcq.kernel.{entry.number}":
                return f"@{entry.name}"
        for number, array in self.arrays.items():
            if name == f"@hcq.array.{number}":
                return f"@{array.name}"
        return name

    def _lowered(self, entry: _Entry, lines: list[str], types: str, metadata: text.Metadata) -> Lowered:
        from hcq.drivers.cpu import llvm_grid
        from hcq.drivers.cpu.llvm_group import Kernel, Types
        from hcq.drivers.cpu.llvm_locals import Refused

        values = self.values[entry.number]

        def type_of(value: int) -> tuple[str, int]:
            kind = values[value].type
            shown = f"%{text.quoted(kind.name)[1:]}" if kind.is_struct and kind.name else str(kind)
            return shown, self.host.data.get_abi_size(kind)

        def size_of(kind: str) -> int:
            module = self.session.parse(f"{types}\n@size = external global {kind}")
            variable = module.get_global_variable("size")
            return int(self.host.data.get_abi_size(variable.global_value_type))

        try:
            kernel = Kernel(entry.number, lines, entry.attributes)
            return llvm_grid.lower(kernel, self.arrays, Types(type_of, size_of), metadata)
        except Refused as reason:
            raise self.refuse(f"@{entry.name}: {reason}") from None


def _launchable(function: Any) -> bool:
    return not function.is_declaration and function.linkage.name in _LAUNCHABLE


def _without(unwanted: str, printed: str) -> str:
    """A printed module without some function attributes."""

    def cleaned(line: str) -> str:
        match = re.fullmatch(_ATTRIBUTES, line)
        if match is None:
            return line
        left = re.sub(unwanted, "", match[2]) or '"hcq" '  # a group can't be empty
        return f"{match[1]}{left}}}"

    return "\n".join(map(cleaned, printed.split("\n")))


def _architecture(triple: str) -> str:
    name = triple.split("-", 1)[0]
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def _rename(function: Any) -> dict[int, Any]:
    """Gives everything in a kernel the names that llvm_text expects; the values by their number."""
    values: dict[int, Any] = {}
    for number, block in enumerate(function.blocks):
        block.name = f"hcq.b{number}"
        for instruction in block.instructions:
            if str(instruction.type) != "void":
                instruction.name = f"hcq.v{len(values)}"
                values[len(values)] = instruction
    for number, argument in enumerate(function.arguments):
        argument.name = f"hcq.a{number}"
    return values


def _wrapper(entry: _Entry, offsets: tuple[int, ...], local_bytes: int, header: str) -> list[str]:
    """The function that the loader finds: it reads the arguments and calls what does the work."""
    read = "ptr noalias noundef nonnull readonly align 8"
    context = f", {read} %hcq.context" if entry.grid else ""
    lines = [f"define void {text.quoted(entry.name)}({read} %hcq.kernargs{context}) {entry.attributes} {{"]
    passed = []
    for number, (kind, offset) in enumerate(zip(entry.types, offsets, strict=True)):
        at, value = f"%hcq.p{number}", f"%hcq.a{number}"
        lines.append(f"  {at} = getelementptr inbounds i8, ptr %hcq.kernargs, i64 {offset}")
        if kind == "i1":
            lines += [f"  %hcq.w{number} = load i8, ptr {at}", f"  {value} = icmp ne i8 %hcq.w{number}, 0"]
        else:
            lines.append(f"  {value} = load {kind}, ptr {at}")
        passed.append(f"{kind} {value}")
    if entry.grid:
        passed += ["ptr %hcq.context", "ptr %hcq.local", "ptr %hcq.arena"]
        lines += [
            f"  %hcq.scratch = getelementptr inbounds i8, ptr %hcq.context, i64 {llvm_context.SCRATCH}",
            "  %hcq.local = load ptr, ptr %hcq.scratch",
            f"  %hcq.arena = getelementptr inbounds i8, ptr %hcq.local, i64 {local_bytes}",
        ]
    target = f"@hcq.run.{entry.number}" if entry.grid else f"@hcq.kernel.{entry.number}"
    # Between `define internal` and the type stands the calling convention; a grid kernel's is gone with its own code.
    words = [w for w in header.split(" void @", 1)[0].split() if w not in ("define", "internal", "dso_local")]
    convention = " ".join(words) + " " if words and not entry.grid else ""
    lines += [
        f"  call {convention}void {target}({', '.join(passed)})",
        "  ret void",
        "}",
    ]
    return lines
