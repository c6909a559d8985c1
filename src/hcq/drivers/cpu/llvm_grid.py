"""From a kernel written for one work-item to a function that runs a work-group.

Takes the printed form of a renamed kernel (llvm_text) and writes LLVM IR; docs/design/llvm-grid.md says how and why.
What does not live here: which functions are kernels, their parameters (llvm_module), and the loops over items
(llvm_group).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hcq.drivers.cpu import llvm_text as text
from hcq.drivers.cpu import llvm_versions as versions
from hcq.drivers.cpu.llvm_context import IDS
from hcq.drivers.cpu.llvm_group import Common, Lowered, Version
from hcq.drivers.cpu.llvm_locals import LocalArray, Locals, Refused
from hcq.drivers.cpu.llvm_regions import Analysis

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hcq.drivers.cpu.llvm_group import Kernel, Types
    from hcq.drivers.cpu.llvm_text import Instruction, Metadata

_NARROW = 4  # rows of fewer items than this go round loops one after the other
_TYPE = re.compile(r"ptr addrspace\(\d+\)|\w+")
_REFUSED = frozenset(["invoke", "callbr", "indirectbr", "resume", "catchswitch", "cleanupret", "catchret"])
_CALL = re.compile(r" (?:void @hcq\.barrier\(\)|i32 @hcq\.(?:group_id|local_id|local_size|num_groups)\(i32 [^,]*\))")


def lower(kernel: Kernel, arrays: Mapping[int, LocalArray], types: Types, metadata: Metadata) -> Lowered:
    """Lower a kernel to `@hcq.run.N(params..., ptr context, ptr local, ptr arena)`. Raises Refused."""
    memory = Locals(arrays)
    blocks = text.blocks(kernel.lines)
    for block in blocks:
        for i in block:
            _prepare(i, memory)
    first = Analysis(blocks)
    guards = versions.guards(first)
    common = Common(kernel, memory, types, metadata)
    if not (first.together or guards) or (first.leaving and not guards):
        return Version(common, "run", blocks, first if not first.together else Analysis(blocks, False)).write()
    general = Version(common, "general", blocks, Analysis(blocks, False)).write()
    fast_blocks = versions.without_leaving(blocks, guards) if guards else blocks
    fast = Version(common, "fast", fast_blocks, Analysis(fast_blocks)).write()
    lines = general.lines + fast.lines
    if guards:
        check = versions.only_leaving(blocks, guards)
        lines += Version(common, "check", check, Analysis(check, False)).write().lines
    lines += _choose(common, bool(first.together), guards is not None)
    return Lowered(lines, general.scratch_group, max(general.scratch_item, fast.scratch_item))


def _prepare(i: Instruction, memory: Locals) -> None:
    if i.op in _REFUSED:
        raise Refused(f"a grid kernel can't use {i.op}")
    i.text = i.text.replace("musttail call", "call", 1)
    memory.lower(i)
    if "@hcq." in i.text and not (i.op == "call" and _CALL.search(i.text) and i.text.count("@hcq.") == 1):
        raise Refused(f"work-item functions can only be called, and as declared: {i.text.strip()}")


def _choose(common: Common, together: bool, guarded: bool) -> list[str]:
    """The function that picks a version for a group."""
    number, parameters = common.kernel.number, common.parameters()
    passed = ", ".join(f"{_type(p)} {p.rsplit(' ', 1)[1]}" for p in parameters)
    lines = [
        f"define internal void @hcq.run.{number}({', '.join(parameters)}) alwaysinline {common.kernel.attributes} {{"
    ]
    if together:
        lines += [
            f"  %hcq.at = getelementptr inbounds i8, ptr %hcq.context, i64 {IDS[2][1]}",
            "  %hcq.width = load i32, ptr %hcq.at",
            f"  %hcq.narrow = icmp ult i32 %hcq.width, {_NARROW}",
            "  br i1 %hcq.narrow, label %hcq.general, label %hcq.wide",
            "hcq.wide:",
        ]
    if guarded:
        lines += [
            "  %hcq.left = alloca i32",
            "  store i32 0, ptr %hcq.left",
            f"  call void @hcq.check.{number}({passed}, ptr %hcq.left)",
            "  %hcq.some = load i32, ptr %hcq.left",
            "  %hcq.none = icmp eq i32 %hcq.some, 0",
            "  br i1 %hcq.none, label %hcq.fast, label %hcq.general",
            "hcq.fast:",
        ]
    return [
        *lines,
        f"  call void @hcq.fast.{number}({passed})",
        "  ret void",
        "hcq.general:",
        f"  call void @hcq.general.{number}({passed})",
        "  ret void",
        "}",
    ]


def _type(parameter: str) -> str:
    match = _TYPE.match(parameter)
    if match is None:
        raise Refused(f"a parameter that can't be passed on: {parameter}")
    return match[0]
