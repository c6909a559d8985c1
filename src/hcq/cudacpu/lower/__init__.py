"""PTX to LLVM IR. `translate` is the way in; module.py has what comes out.

Modules of operations register what they translate (registry.py) and write it through the emitter (emitter.py).
"""

from __future__ import annotations

from hcq.cudacpu.lower.module import Global, Kernel, Options, Translated, translate
from hcq.cudacpu.lower.opcodes import (
    atomics,
    barriers,
    bits,
    bytes,
    calls,
    compare,
    control,
    copies,
    cvt,
    division,
    floats,
    integers,
    ldmatrix,
    memory,
    mma,
    moves,
    spaces,
    stack,
    video,
    warps,
    wmma,
)
from hcq.cudacpu.ptx.errors import Unsupported

OPERATIONS = (
    atomics,
    barriers,
    bits,
    bytes,
    calls,
    compare,
    control,
    copies,
    cvt,
    division,
    floats,
    integers,
    ldmatrix,
    memory,
    mma,
    moves,
    spaces,
    stack,
    video,
    warps,
    wmma,
)

__all__ = ["OPERATIONS", "Global", "Kernel", "Options", "Translated", "Unsupported", "translate"]
