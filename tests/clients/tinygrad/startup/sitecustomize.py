"""Found on PYTHONPATH by every Python that a client program starts: puts the hook in before anything can import
tinygrad, then lets the `sitecustomize` run that this one stands before, if there is one.

Imports nothing else that Python hasn't imported by then: other programs wait for this too.
"""

import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
_path, _this = sys.path, sys.modules.pop(__name__)

sys.path = [os.path.dirname(_here), *_path]
import hook  # noqa: E402

hook.install()
del sys.modules["hook"]  # a name that programs may have for something of their own

# Gone for good: children have it from the environment, and here each import would look into it first.
_path[:] = [path for path in _path if os.path.abspath(path) != _here]
sys.path = _path
try:
    __import__(__name__)  # the next one
except ImportError as _error:
    if _error.name != __name__:
        raise
finally:
    sys.modules.setdefault(__name__, _this)
