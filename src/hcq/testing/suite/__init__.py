"""The tests of the contract, one module an area. They are written from the contract alone, run on any driver, and use
nothing that the contract does not name. tools.py has what several of them share; no test lives here."""

from __future__ import annotations

import importlib
import pkgutil


def all_tests() -> dict[str, object]:
    """All tests by name. Names are unique over the suite, since a driver's test module takes them all."""
    tests: dict[str, object] = {}
    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith("test_"):
            continue
        found = vars(importlib.import_module(f"{__name__}.{module.name}"))
        for name, value in found.items():
            if name.startswith("test_") and callable(value):
                if name in tests and tests[name] is not value:
                    raise RuntimeError(f"two tests of the suite are called {name}")
                tests[name] = value
    return tests
