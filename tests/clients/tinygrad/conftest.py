"""tinygrad's programs on hcq. Collected only where tinygrad is; where it is not, test_presence.py says so."""

import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_spec = importlib.util.spec_from_file_location("hcq_tinygrad_hook", os.path.join(_HERE, "hook.py"))
hook = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(hook)
sys.modules["hcq_tinygrad_hook"] = hook

collect_ignore_glob = ["served/*", "startup/*"]
if hook.why_not() is None:
    # tinygrad's own cache beside hcq's, which is the tests' own already
    os.environ["CACHEDB"] = os.path.join(os.environ["HCQ_CACHE_DIR"], "tinygrad.db")
    hook.install()
else:
    _tests = [name for name in os.listdir(_HERE) if name.startswith("test_")]
    collect_ignore_glob += [name for name in _tests if name != "test_presence.py"]
