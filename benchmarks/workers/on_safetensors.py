"""safetensors: its loader for NumPy."""

from __future__ import annotations

from importlib.metadata import version

import weights
from safetensors.numpy import load_file
from serve import VERSIONS, serve

VERSIONS["safetensors"] = version("safetensors")
weights.LOAD["call"] = lambda paths: {name: array for path in paths[:-1] for name, array in load_file(path).items()}
weights.SOURCE["setup"] = "from safetensors.numpy import load_file"
weights.SOURCE["load"] = "loaded = [load_file(path) for path in paths[:-1]]"

if __name__ == "__main__":
    serve()
