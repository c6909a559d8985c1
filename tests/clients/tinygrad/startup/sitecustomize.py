"""Found on PYTHONPATH by every Python that a client program starts: puts the hook in before anything can import
tinygrad, then runs the `sitecustomize` that this one stands before, if there is one."""

import importlib.machinery
import importlib.util
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))


def _run(spec: object) -> object:
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(module)  # type: ignore[attr-defined]
    return module


_run(
    importlib.util.spec_from_file_location("hcq_tinygrad_hook", os.path.join(os.path.dirname(_here), "hook.py"))
).install()

_hidden = importlib.machinery.PathFinder.find_spec(
    "sitecustomize", [path for path in sys.path if os.path.abspath(path) != _here]
)
if _hidden is not None:
    _run(_hidden)
