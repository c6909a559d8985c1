"""Drivers that other packages bring: the entry-point group `hcq.drivers` of all installed packages.

What does not live here: which of them are used (the registry), and the built-in drivers (hcq.drivers).
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "hcq.drivers"

_METADATA = (".dist-info", ".egg-info")


def installed() -> tuple[EntryPoint, ...]:
    """The entry points of the group. Where no package mentions the group, importlib.metadata is not asked: it reads
    much more of every package, and takes 10 ms even where few are installed."""
    if not _mentioned():
        return ()
    from importlib.metadata import entry_points

    return tuple(entry_points(group=GROUP))


def _mentioned() -> bool:
    """Whether the group may be found: by a package on sys.path that names it, or in a way that can't be looked into
    from here (an archive, an egg, an importer of another kind)."""
    if any(hasattr(finder, "find_distributions") for finder in sys.meta_path if finder is not PathFinder):
        return True
    wanted = GROUP.encode()
    for folder in dict.fromkeys(sys.path):
        try:
            names = os.listdir(folder or ".")
        except (FileNotFoundError, PermissionError):
            continue
        except OSError:
            return True
        if folder.endswith(".egg"):
            return True
        for name in names:
            if name.endswith(_METADATA):
                try:
                    with open(os.path.join(folder, name, "entry_points.txt"), "rb") as file:
                        if wanted in file.read():
                            return True
                except OSError:  # most have none
                    continue
    return False
