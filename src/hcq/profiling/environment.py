"""PROFILE=1: a profile from `import hcq` to the end of the interpreter. What does not live here: profiles (session)."""

from __future__ import annotations

import atexit
import os
import sys

from hcq import config
from hcq.profiling.files import has_perfetto
from hcq.profiling.session import Profile, check_path
from hcq.runtime import process

_current: Profile | None = None


def start() -> None:
    """Begin to record, and see to it that the trace is written at the end. The registry of exits calls `finish`."""
    global _current
    if _current is not None:
        return
    path = _path()  # where the program began, wherever it has gone to by the end
    os.environ.setdefault(config.PROFILE_OWNER.name, str(os.getpid()))
    _current = Profile(path).__enter__()
    atexit.register(finish)
    process.at_fork_in_child(_enter_child)


def finish() -> None:
    """Write the trace, and say on standard error where it is; a file that can't be written is no reason to fail."""
    global _current
    ended, _current = _current, None
    if ended is None or not ended.stop() or ended.path is None:
        return
    try:
        path = ended.save(ended.path)
    except OSError as error:
        print(f"hcq: PROFILE=1: the trace could not be written: {error}", file=sys.stderr)
    else:
        print(f"hcq: PROFILE=1: trace of {len(ended.spans)} spans in {path}", file=sys.stderr)


def _path() -> str:
    given = config.PROFILEPATH()
    suffix = ".pftrace" if has_perfetto() else ".json"
    if given is None:
        return os.path.abspath(f"hcq-{os.getpid()}{suffix}")
    path = os.path.abspath(check_path(given))
    owner = config.PROFILE_OWNER()
    if owner is None or owner == str(os.getpid()):
        return path
    # Of a process that writes there itself: this one has a file of its own.
    base, suffix = os.path.splitext(path)
    return f"{base}-{os.getpid()}{suffix}"


def _enter_child() -> None:
    # The parent's records are the parent's. A child that leaves by os._exit runs no exit handlers and writes nothing.
    global _current
    if _current is not None:
        _current = Profile(_path()).__enter__()
