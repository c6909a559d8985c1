"""Files of tensors: safetensors (one file or an index over shards), GGUF, .npy and .npz, to buffers and back.

`load` and `save` are also `hcq.load` and `hcq.save`; `open` looks into a file without reading its tensors. What does
not live here: reading files (hcq.drivers.disk).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hcq.errors import FormatError as FormatError
    from hcq.formats.archive import Archive as Archive
    from hcq.formats.archive import open as open
    from hcq.formats.entry import Entry as Entry
    from hcq.formats.loading import Tensors as Tensors
    from hcq.formats.loading import load as load
    from hcq.formats.saving import save as save

_HOME = {
    "Archive": "hcq.formats.archive",
    "Entry": "hcq.formats.entry",
    "FormatError": "hcq.errors",
    "Tensors": "hcq.formats.loading",
    "load": "hcq.formats.loading",
    "open": "hcq.formats.archive",
    "save": "hcq.formats.saving",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOME:
        raise AttributeError(f"module 'hcq.formats' has no attribute {name!r}")
    value: Any = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
