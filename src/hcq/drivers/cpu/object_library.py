"""From the object that a C compiler wrote to a library: its functions, found and typed.

What does not live here: the library's layout (library), reading objects and debug information (elf, dwarf).
"""

from __future__ import annotations

from hcq.drivers.cpu import dwarf, elf
from hcq.drivers.cpu.library import EntryKind, Function, pack

MAX_ARGUMENT_BYTES = 4096
KERNEL_SECTION, LOCAL_SECTION = ".text.hcq_kernel", ".bss.hcq_local"  # named by hcq.h


def make_library(object_bytes: bytes) -> bytes:
    """The library of an object: its functions found and typed from debug information, which is then dropped."""
    obj = elf.Object(object_bytes)
    return pack(obj.stripped(), functions_of(obj), obj.machine)


def functions_of(obj: elf.Object) -> list[Function]:
    """Every function that an object defines for others, and whether and how it can be launched."""
    signatures = dwarf.signatures(obj)
    has_barrier = any(symbol.name == "hcq_barrier" and symbol.section == 0 for symbol in obj.symbols)
    kernel_kind = EntryKind.FIBERS if has_barrier else EntryKind.ITEMS
    uses: dict[int, list[int]] = {}
    functions = []
    for symbol in obj.symbols:
        if not symbol.is_function or not 0 < symbol.section < len(obj.sections):
            continue
        section = obj.sections[symbol.section]
        kernel = section.name.startswith(KERNEL_SECTION)
        signature = signatures.get(symbol.name)
        refused = signature.refused if signature is not None else ""
        if kernel and signature is not None and signature.returns:
            refused = refused or "a kernel (HCQ_KERNEL) must return void"
        if not kernel:
            if section.number not in uses:
                uses[section.number] = _group_uses(obj, section)
            if any(symbol.value <= at < symbol.value + symbol.size for at in uses[section.number]):
                refused = refused or "it uses work-groups (hcq.h) but isn't marked HCQ_KERNEL"
        params = None if signature is None or refused else signature.params
        function = Function(symbol.name, kernel_kind if kernel else EntryKind.PLAIN, params, refused)
        if params and function.offsets()[-1] + params[-1].kind.size > MAX_ARGUMENT_BYTES:
            function = function._replace(
                params=None, refused=f"its arguments take more than {MAX_ARGUMENT_BYTES} bytes"
            )
        functions.append(function)
    return functions


def _group_uses(obj: elf.Object, section: elf.Section) -> list[int]:
    """Offsets in a section where code uses its work-group: hcq.h marks them by relocations without effect."""
    none = (0,) if obj.machine == 62 else (0, 256)
    local = obj.by_name.get(LOCAL_SECTION)
    uses = []
    for offset, kind, number, _addend in obj.relocations(section):
        symbol = obj.symbols[number]
        is_local = local is not None and symbol.section == local.number
        if kind in none or symbol.name == "hcq_barrier" or is_local:
            uses.append(offset)
    return uses
