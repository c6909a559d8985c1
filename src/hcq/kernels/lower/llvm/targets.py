"""What LLVM IR for a processor looks like around a kernel's own operations: address spaces, ids, barrier, entry.

The CPU's is the dialect of the device LLVM. GPUs are compiled here as well (`assembly`, `code`), since no device needs
to be there for it. What does not live here: operations (ops), control flow (flow).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hcq.drivers.cpu import llvm_host
from hcq.errors import CompileError

if TYPE_CHECKING:
    from hcq.kernels.lower.llvm.text import Emitter


class Target(NamedTuple):
    """One kind of processor. `spaces` are the address spaces of global, local and private memory, `head` the lines that
    a module begins with, `scope` that of atomic operations. `passes_bits`: bool, f16 and bf16 are passed as integers or
    half. `cpu` is the oldest processor that has what kernels need."""

    name: str
    spaces: tuple[int, int, int] = (0, 3, 0)
    head: tuple[str, ...] = ()
    convention: str = ""
    attributes: str = ""
    scope: str = ""
    passes_bits: bool = False
    triple: str = ""
    cpu: str = ""

    def pointer(self, space: str) -> str:
        """The LLVM type of a pointer into a space."""
        number = self.spaces[("global", "local", "private").index(space)]
        return f"ptr addrspace({number})" if number else "ptr"

    def id(self, e: Emitter, kind: str, dim: int) -> str:
        """group_id, num_groups, local_id or local_size, an i32."""
        if self.name == "nvptx":
            word = {"group_id": "ctaid", "num_groups": "nctaid", "local_id": "tid", "local_size": "ntid"}[kind]
            return e.call(f"llvm.nvvm.read.ptx.sreg.{word}.{'xyz'[dim]}", "i32")
        if self.name != "amdgpu":
            return e.call(f"hcq.{kind}", "i32", ("i32", str(dim)))
        if kind in ("group_id", "local_id"):
            word = "workgroup" if kind == "group_id" else "workitem"
            return e.call(f"llvm.amdgcn.{word}.id.{'xyz'[dim]}", "i32")
        size = self._packet(e, "i16", 4 + 2 * dim)
        size = e.emit(f"zext i16 {size} to i32")
        if kind == "local_size":
            return size
        items = self._packet(e, "i32", 12 + 4 * dim)  # a whole number of groups
        return e.emit(f"udiv i32 {items}, {size}")

    def _packet(self, e: Emitter, kind: str, offset: int) -> str:
        """A field of the dispatch packet (HSA Platform System Architecture, 2.9.6)."""
        packet = e.call("llvm.amdgcn.dispatch.ptr", "ptr addrspace(4)")
        at = e.emit(f"getelementptr inbounds i8, ptr addrspace(4) {packet}, i64 {offset}")
        return e.emit(f"load {kind}, ptr addrspace(4) {at}, align 2")

    def barrier(self, e: Emitter) -> None:
        if self.name == "nvptx":
            e.declare("llvm.nvvm.barrier.cta.sync.aligned.all", "void", "i32")
            e.do("call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)")
        elif self.name == "amdgpu":
            e.declare("llvm.amdgcn.s.barrier", "void", "")
            e.do('fence syncscope("workgroup") release')
            e.do("call void @llvm.amdgcn.s.barrier()")
            e.do('fence syncscope("workgroup") acquire')
        else:
            e.declare("hcq.barrier", "void", "")
            e.do("call void @hcq.barrier()")


CPU: Final = Target("llvm")
NVPTX: Final = Target(
    "nvptx",
    spaces=(1, 3, 0),
    head=('target triple = "nvptx64-nvidia-cuda"',),
    convention="ptx_kernel",
    passes_bits=True,
    triple="nvptx64-nvidia-cuda",
    cpu="sm_80",
)
AMDGPU: Final = Target(
    "amdgpu",
    spaces=(1, 3, 5),
    head=('target datalayout = "A5-G1"', 'target triple = "amdgcn-amd-amdhsa"'),
    convention="amdgpu_kernel",
    # Any group size may be launched.
    attributes='"amdgpu-flat-work-group-size"="1,1024"',
    scope=' syncscope("agent")',
    passes_bits=True,
    triple="amdgcn-amd-amdhsa",
    cpu="gfx942",
)
GPUS: Final = {each.name: each for each in (NVPTX, AMDGPU)}


def assembly(text: str, target: Target, cpu: str | None = None) -> str:
    """PTX, or an AMD GPU's assembly, of a module; `cpu` is a processor's name, else the target's oldest. Raises
    CompileError."""
    return str(_emitted(text, target, cpu, "emit_assembly"))


def code(text: str, target: Target, cpu: str | None = None) -> bytes:
    """A relocatable object of a module. Raises CompileError."""
    return bytes(_emitted(text, target, cpu, "emit_object"))


def _emitted(text: str, target: Target, cpu: str | None, what: str) -> Any:
    """What LLVM makes of a module at O3."""
    cpu = cpu or target.cpu
    if not re.fullmatch(r"sm_\d+[af]?" if target is NVPTX else r"gfx[\da-f]+", cpu):  # LLVM takes others for old ones
        raise CompileError(f"{cpu!r} is no processor of {target.name}: one is {target.cpu}")
    with llvm_host.LOCK, llvm_host.Session(text) as session:
        llvm = llvm_host.binding()
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        machine = llvm.Target.from_triple(target.triple).create_target_machine(cpu=cpu, opt=3)
        module = session.parse(text)
        module.data_layout = str(machine.target_data)
        llvm_host.optimise(module, machine)
        return getattr(machine, what)(module)
