"""PTX to LLVM IR. `translate` is the way in; module.py has what comes out.

The modules of opcodes register what they translate (registry.py) and write it through the emitter (emitter.py).
"""

from __future__ import annotations

from hcq.cudacpu.lower import opcodes  # noqa: F401  (fills the registry)
from hcq.cudacpu.lower.module import Global, Kernel, Options, Translated, kernel_of, translate, variables_of
from hcq.cudacpu.ptx.errors import Unsupported

__all__ = ["Global", "Kernel", "Options", "Translated", "Unsupported", "kernel_of", "translate", "variables_of"]
