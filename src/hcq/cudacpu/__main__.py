"""python -m hcq.cudacpu script.py arguments, or -m module arguments: run a program with the CUDA driver on the CPU."""

from __future__ import annotations

import os
import runpy
import sys

import hcq.cudacpu

_USAGE = """usage: python -m hcq.cudacpu script.py [arguments]
       python -m hcq.cudacpu -m module [arguments]
       python -m hcq.cudacpu -c code [arguments]

Runs a Python program with hcq's CUDA driver on the CPU in place of NVIDIA's. The Python processes that it
starts have it too."""


def main() -> None:
    """Run what the arguments name, as Python itself would."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE, file=sys.stderr if not arguments else sys.stdout)
        raise SystemExit(0 if arguments else 2)
    os.environ.update(hcq.cudacpu.child_environment())
    hcq.cudacpu.install()
    what = arguments[0]
    if what in ("-m", "-c") and len(arguments) < 2:
        print(_USAGE, file=sys.stderr)
        raise SystemExit(2)
    if what == "-m":
        sys.argv = arguments[1:]
        sys.path[0:0] = [""]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif what == "-c":
        sys.argv = ["-c", *arguments[2:]]
        sys.path[0:0] = [""]
        exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = arguments
        sys.path[0:0] = [os.path.dirname(os.path.abspath(what))]
        runpy.run_path(what, run_name="__main__")


if __name__ == "__main__":
    main()
