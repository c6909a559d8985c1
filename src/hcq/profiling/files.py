"""Writing a trace as what its suffix says. The formats are chrome (JSON) and perfetto (protobuf)."""

from __future__ import annotations

import os
import warnings
from importlib.util import find_spec
from typing import TYPE_CHECKING

from hcq.runtime.compiler import callers_level

if TYPE_CHECKING:
    from hcq.profiling.session import Profile


def has_perfetto() -> bool:
    """Whether the package that knows Perfetto's format is installed."""
    try:
        return find_spec("perfetto") is not None
    except ValueError:  # a module of that name without a spec
        return False


def write(profile: Profile, path: str) -> str:
    """Write the trace; returns the path, which is another one where protobuf was asked for and can't be had."""
    base, suffix = os.path.splitext(path)
    if suffix.lower() == ".pftrace":
        if has_perfetto():
            from hcq.profiling.perfetto import encode

            _put(path, encode(profile))
            return path
        path = base + ".json"
        warnings.warn(
            f"the package perfetto is not installed (pip install 'hcq[perfetto]'): the trace is JSON, in {path}",
            stacklevel=callers_level(),
        )
    from hcq.profiling.chrome import encode as encode_json

    _put(path, encode_json(profile))
    return path


def _put(path: str, data: bytes) -> None:
    # Aside first: who looks meanwhile, or a full disk, finds a whole trace or none.
    aside = f"{path}.{os.getpid()}.part"
    try:
        with open(aside, "wb") as file:
            file.write(data)
        os.replace(aside, path)
    except BaseException:
        if os.path.exists(aside):
            os.unlink(aside)
        raise
