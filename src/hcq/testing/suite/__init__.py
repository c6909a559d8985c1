"""The tests of the contract, one module an area. They are written from the contract alone, run on any driver, and use
nothing that the contract does not name. tools.py has what several of them share; no test lives here."""

from __future__ import annotations

import importlib
import pkgutil


def all_tests() -> dict[str, object]:
    """All tests, and the fixtures of their modules, by name; unique, since a driver's test module takes them all."""
    tests: dict[str, object] = {}
    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith("test_"):
            continue
        for name, value in vars(importlib.import_module(f"{__name__}.{module.name}")).items():
            wanted = (name.startswith("test_") and callable(value)) or _is_fixture(value)
            if wanted and tests.setdefault(name, value) is not value:
                raise RuntimeError(f"two tests or fixtures of the suite are called {name}")
    return tests


def _is_fixture(value: object) -> bool:
    # The attribute is pytest's until 8.3, the class since.
    return hasattr(value, "_pytestfixturefunction") or type(value).__name__ == "FixtureFunctionDefinition"
