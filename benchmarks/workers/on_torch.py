"""safetensors: its loader for PyTorch, on the processor.

It maps the file, and reads nothing: each tensor is cloned, so that it is in memory of its own as everybody else's is.
"""

from __future__ import annotations

from importlib.metadata import version

import weights
from safetensors.torch import load_file
from serve import VERSIONS, serve

VERSIONS["safetensors"], VERSIONS["torch"] = version("safetensors"), version("torch")
weights.LOAD["call"] = lambda paths: {
    name: tensor.clone() for path in paths[:-1] for name, tensor in load_file(path).items()
}
weights.SOURCE["setup"] = "from safetensors.torch import load_file"
weights.SOURCE["load"] = "loaded = [{name: t.clone() for name, t in load_file(path).items()} for path in paths[:-1]]"

if __name__ == "__main__":
    serve()
