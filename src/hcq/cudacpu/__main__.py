"""python -m hcq.cudacpu script.py arguments, or -m module arguments: run a program with the CUDA driver on the CPU."""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
from typing import NoReturn

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
    what = arguments[0]
    if what in ("-m", "-c"):
        if len(arguments) < 2:
            _refuse(_USAGE)
    elif what.startswith("-"):
        _refuse(f"hcq.cudacpu: unknown option {what}; Python's own stand before -m: python {what} -m hcq.cudacpu ...")
    elif not os.path.exists(what):
        _refuse(f"hcq.cudacpu: there is no {what!r}")
    os.environ.update(hcq.cudacpu.child_environment())
    hcq.cudacpu.install()
    if what == "-m":
        sys.argv = arguments[1:]
        sys.path[0:0] = [""]
        if not _is_module(arguments[1]):
            _refuse(f"hcq.cudacpu: no module named {arguments[1]!r}", 1)
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif what == "-c":
        sys.argv = ["-c", *arguments[2:]]
        sys.path[0:0] = [""]
        exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = arguments
        sys.path[0:0] = [os.path.dirname(os.path.abspath(what))]
        runpy.run_path(what, run_name="__main__")


def _refuse(text: str, code: int = 2) -> NoReturn:
    print(text, file=sys.stderr)
    raise SystemExit(code)


def _is_module(name: str) -> bool:
    """Whether there is such a module; packages around it are imported, as they would be anyhow."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError as error:
        if not error.name or not name.startswith(error.name):
            raise  # one that a package around it needs
        return False


if __name__ == "__main__":
    main()
