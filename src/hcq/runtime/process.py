"""Which process this is: a generation that rises at every fork, so that inherited objects can be told from our own.

Everything of hcq that belongs to one process (devices, queues, signals) notes the generation it was made in and
compares it later: two integers, where asking for the process id would be a system call. Native code keeps a counter of
its own with the same meaning.
"""

from __future__ import annotations

import os

from hcq.errors import ForkedDeviceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

generation = 0
"""0 in the process that imported hcq, one more in each child forked from it."""

pids = [os.getpid()]
"""The process id of each generation, the last being this process; so `pids[g]` names the maker of generation g."""


def check(made_in: int, what: str) -> None:
    """Raise ForkedDeviceError if `what` was made in another generation (a process that this one was forked from)."""
    if made_in != generation:
        raise forked(made_in, what)


def forked(made_in: int, what: str) -> ForkedDeviceError:
    """The error for a use of `what`, made in generation `made_in`, in this process."""
    return ForkedDeviceError(
        f"{what} was made in process {pids[made_in]} and is used in process {pids[-1]}, which was forked from it: "
        "open the device again here with Device[name]"
    )


def _enter_child() -> None:
    global generation
    generation += 1
    pids.append(os.getpid())


def at_fork_in_child(callback: Callable[[], object]) -> None:
    """Call `callback` in every child forked from now on, in the order of registration. Without fork: nothing."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=callback)


at_fork_in_child(_enter_child)
