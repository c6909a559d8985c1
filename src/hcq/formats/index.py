"""The index over several safetensors files: a JSON file that names the file of each tensor.

Follows the layout of `model.safetensors.index.json` (Hugging Face Hub, "weight_map"). What does not live here: the
files themselves (safetensors).
"""

from __future__ import annotations

import json
import os
from typing import Any

from hcq.errors import FormatError
from hcq.formats.source import Source

_MOST = 1 << 28  # bytes of an index


def parse(source: Source) -> tuple[dict[str, str], dict[str, Any]]:
    """The path of each tensor's file, and the index's metadata. Opens none of the files.

    FormatError for what is wrong, and for files outside of the index's own folder.
    """
    if source.size > _MOST:
        raise FormatError(source.path, None, f"an index of {source.size} bytes; {_MOST} are the limit")
    try:
        index = json.loads(source.read(0, source.size).decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise FormatError(source.path, getattr(error, "pos", None), f"not an index in JSON: {error}") from None
    files = index.get("weight_map") if isinstance(index, dict) else None
    metadata = index.get("metadata", {}) if isinstance(index, dict) else None
    if not isinstance(files, dict) or not isinstance(metadata, dict):
        raise FormatError(source.path, None, "an index is an object with weight_map, from a tensor's name to its file")
    folder = os.path.dirname(source.path)
    return {name: _inside(source, folder, name, file) for name, file in files.items()}, metadata


def describe(files: dict[str, str], total: int, metadata: dict[str, Any]) -> bytes:
    """The text of an index, for the file of each tensor and the bytes of all."""
    index = {"metadata": {**metadata, "total_size": total}, "weight_map": files}
    return json.dumps(index, indent=2, ensure_ascii=False).encode() + b"\n"


def _inside(source: Source, folder: str, name: str, file: Any) -> str:
    if not isinstance(file, str) or not file or os.path.basename(file) != file or file in (".", "..") or "\0" in file:
        raise FormatError(source.path, None, f"the file of tensor {name!r} must be a name in this folder, not {file!r}")
    return os.path.join(folder, file)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} occurs twice")
        found[key] = value
    return found
