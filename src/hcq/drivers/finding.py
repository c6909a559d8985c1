"""What drivers of others' libraries share: which of several devices a name means, and whether this process may ask.

What does not live here: which devices there are and in what order (each driver's own).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from hcq.errors import DeviceUnavailable
from hcq.runtime import process

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Found = TypeVar("Found")


class Use:
    """The use of a library that does not outlive a fork: `Use("OpenCL", "GPU", "its threads are not here")`, said of
    the library, of what its devices are called, and why it is of no use in a child. Threads may share it."""

    def __init__(self, library: str, device: str, why: str) -> None:
        self._said = library, device, why
        self._generation: int | None = None  # the process in which the library was used first

    def check(self) -> None:
        """Raise DeviceUnavailable in a child forked after the library was used."""
        if self._generation is not None and self._generation != process.generation:
            library, device, why = self._said
            raise DeviceUnavailable(
                f"{library} was used before this process was forked, and {why}",
                f"start processes with multiprocessing's 'spawn', or open {device} in the child alone",
            )

    def begin(self) -> None:
        """The library is used from now on: a child forked later can't use it."""
        self._generation = process.generation


def choose(
    name: str,
    found: Sequence[Found],
    names: Callable[[Found], tuple[str, ...]],
    kind: str,
    hint: str = "count from 0",
    same: bool = False,
) -> Found:
    """The device that a canonical name means, of those that were found: X is the first, X:1 the second, and X:word the
    first with that word, in any case, in one of its `names`, the first of which is shown. Raises DeviceUnavailable.

    `kind` says what has such names, and `hint` what to do where there is no such number. `same`: numbers past the last
    mean the first, as one more device on the same processor.
    """
    head, _, word = name.partition(":")
    if not word or (word.isascii() and word.isdecimal()):
        from hcq.runtime.registry import device_index

        index = device_index(name)
        if index < len(found):
            return found[index]
        if same:
            return found[0]
        raise DeviceUnavailable(f"there is no {name}: {_listed(head, found, names)}", hint)
    for each in found:
        if any(word.lower() in its.lower() for its in names(each)):
            return each
    raise DeviceUnavailable(
        f"no {kind} has {word!r} in its name: {_listed(head, found, names)}", f"a number after {head}: works as well"
    )


def _listed(head: str, found: Sequence[Found], names: Callable[[Found], tuple[str, ...]]) -> str:
    return "; ".join(f"{head}:{index} is {names(each)[0].strip()}" for index, each in enumerate(found))
