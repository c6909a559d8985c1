"""PTX: text to a typed form. `parse` is the way in, `link` makes one module of several; nodes.py has what comes out."""

from __future__ import annotations

from hcq.cudacpu.ptx.errors import PtxError, Unsupported
from hcq.cudacpu.ptx.linking import link
from hcq.cudacpu.ptx.nodes import Module
from hcq.cudacpu.ptx.parser import parse

__all__ = ["Module", "PtxError", "Unsupported", "link", "parse"]
