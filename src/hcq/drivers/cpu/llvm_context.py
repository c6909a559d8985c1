"""A work-group as LLVM IR sees it: what a module may declare of it, and where GroupContext keeps it.

The layout is that of native/core/program.hpp. What does not live here: the code that reads it (llvm_group, llvm_grid).
Every module asks for these, so this imports nothing.
"""

from __future__ import annotations

DECLARATIONS = {
    "hcq.group_id": "i32 (i32)",
    "hcq.local_id": "i32 (i32)",
    "hcq.local_size": "i32 (i32)",
    "hcq.num_groups": "i32 (i32)",
    "hcq.barrier": "void ()",
}
"""What a module may declare, with its type."""

SCRATCH = 40
"""Offset of the scratch pointer in GroupContext (native/core/program.hpp)."""

IDS = (("g", 0, 0), ("n", 12, 1), ("l", 24, 1))
"""The ids: first letter of their names in lowered code, offset of x, lowest value."""
