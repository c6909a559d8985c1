"""What LLVM IR for a processor looks like around a kernel's own operations: address spaces, ids, barrier, entry.

What does not live here: operations (llvm_ops), control flow (llvm).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from hcq.kernels.lower.llvm_text import Emitter


class Target(NamedTuple):
    """One kind of processor. `spaces` are the address spaces of global, local and private memory."""

    name: str
    spaces: tuple[int, int, int] = (0, 3, 0)
    triple: str = ""
    convention: str = ""
    attributes: str = ""
    exact_rem: bool = True

    def pointer(self, space: str) -> str:
        """The LLVM type of a pointer into a space."""
        number = self.spaces[("global", "local", "private").index(space)]
        return f"ptr addrspace({number})" if number else "ptr"

    def id(self, e: Emitter, kind: str, dim: int) -> str:
        """group_id, num_groups, local_id or local_size, an i32."""
        return e.call(f"hcq.{kind}", "i32", ("i32", str(dim)))

    def barrier(self, e: Emitter) -> None:
        e.declare("hcq.barrier", "void", "")
        e.do("call void @hcq.barrier()")


CPU: Final = Target("llvm")
