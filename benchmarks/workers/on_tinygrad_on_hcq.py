"""tinygrad 0.9.2 with hcq as its device layer (tests/clients/tinygrad), for programs that tinygrad alone runs too."""

from __future__ import annotations

from importlib.metadata import version

from serve import VERSIONS, serve
from tests.clients.tinygrad import hook

hook.install()  # before anything imports tinygrad; new interpreters have it by PYTHONPATH

import programs  # noqa: E402, F401

VERSIONS["tinygrad"] = version("tinygrad")

if __name__ == "__main__":
    serve()
