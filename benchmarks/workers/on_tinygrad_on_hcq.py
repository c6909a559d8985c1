"""tinygrad 0.9.2 with hcq as its device layer (tests/clients/tinygrad), for programs that tinygrad alone runs too."""

from __future__ import annotations

import os
from importlib.metadata import version

from serve import BEHIND, VERSIONS, serve
from tests.clients.tinygrad import hook

hook.install()  # before anything imports tinygrad; new interpreters have it by PYTHONPATH
# The rest of which is where hcq and this checkout are: behind the standard library, where they would be installed.
hooked, *BEHIND[:] = os.environ["PYTHONPATH"].split(os.pathsep)
os.environ["PYTHONPATH"] = hooked

import programs  # noqa: E402, F401

VERSIONS["tinygrad"] = version("tinygrad")

if __name__ == "__main__":
    serve()
