"""The import hook: `tinygrad.device` and the drivers under it come from `served/`, whoever imports them, in this
process and in every Python that it starts.

`served/` mirrors tinygrad's tree. What stands there takes the place of tinygrad's module of that name, which is never
read; of tinygrad's other drivers and their helpers nothing can be imported. All else of tinygrad is its own. What does
not live here: what is served (served/), and running programs (__main__). Imports only what Python has at its start:
children that never import tinygrad wait for this too.
"""

from __future__ import annotations

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SERVED = os.path.join(HERE, "served")
STARTUP = os.path.join(HERE, "startup")

VERSION = "0.9.2"
"""The tinygrad that this is for."""


class ServedFinder:
    """Finds what is served before anything else is looked at, and refuses tinygrad's own device layer."""

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> object:
        package, _, rest = name.partition(".")
        if package != "tinygrad" or not rest:
            return None
        file = os.path.join(SERVED, *rest.split(".")) + ".py"
        if os.path.isfile(file):
            from importlib.util import spec_from_file_location

            return spec_from_file_location(name, file)
        if rest == "device" or rest.startswith(("runtime.ops_", "runtime.support.", "runtime.autogen.")):
            raise ModuleNotFoundError(f"{name} is tinygrad's own driver, and devices are hcq's here", name=name)
        return None


def install() -> None:
    """Put the hook in, here and in the environment of child processes. May be repeated.

    RuntimeError where tinygrad's own device layer was imported before.
    """
    # By name: this file may be loaded under several names, as the program's start and as a child's.
    if not any(getattr(finder, "__name__", "") == ServedFinder.__name__ for finder in sys.meta_path):
        loaded = getattr(sys.modules.get("tinygrad.device"), "__file__", None)
        if loaded is not None:
            raise RuntimeError(f"tinygrad was imported before the hook was there, with {loaded}")
        sys.meta_path.insert(0, ServedFinder)
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if STARTUP not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([STARTUP, *paths])


def why_not() -> str | None:
    """Why tinygrad's programs can't run here, None where they can. Imports nothing of tinygrad."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("tinygrad")
    except PackageNotFoundError:
        return f"tinygrad {VERSION} is not installed: scripts/ci.d/full/clients.sh makes an environment that has it"
    return None if found == VERSION else f"tinygrad {found} is installed, and this is for {VERSION}"
