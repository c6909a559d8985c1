"""`python -m tests.clients.tinygrad script.py ...` (or `-m module ...`, or `-c code ...`) runs an unmodified program of
tinygrad on hcq, as `python` itself would run it on tinygrad's own devices. From the root of a checkout."""

from __future__ import annotations

import os
import runpy
import sys
import types

from tests.clients.tinygrad import hook


def main() -> None:
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.exit(__doc__)
    reason = hook.why_not()
    if reason is not None:
        sys.exit(reason)
    hook.install()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        return
    if arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        name, source = "<string>", arguments[1]
    else:
        sys.argv = arguments
        name = arguments[0]
        sys.path[0] = os.path.dirname(os.path.abspath(name))
        with open(name, encoding="utf-8") as file:
            source = file.read()
    # A module that stays: classes of the program pickle by it, and workers started afresh find its file.
    program = types.ModuleType("__main__")
    if name != "<string>":
        program.__file__ = name
    sys.modules["__main__"] = program
    exec(compile(source, name, "exec"), vars(program))


main()
