"""Runs cases for the tests, in a process of its own: reads `CASE ARCHITECTURE` by line, answers a line of JSON each.

    python cuda_serve.py [CASE [ARCHITECTURE ...]]

With arguments it runs that case, or `all`, and prints a line each. It uses hcq.cudacpu, or with HCQ_TEST_CUDA=driver
the CUDA driver of the machine, so that a GPU can say what it thinks of the same kernels and references.
"""

import json
import os
import sys
import time
import traceback

if os.environ.get("HCQ_TEST_CUDA") != "driver":
    import hcq.cudacpu

    hcq.cudacpu.install()

from cuda_cases import all_cases
from cuda_gpu import Gpu
from cuda_sources import ARCHITECTURES, NoHeader


def answer(gpu, name, architecture):
    """None where the case held, else what was wrong. Raises NoHeader."""
    function, *_ = all_cases()[name]
    gpu.architecture = architecture
    try:
        function(gpu)
        gpu.release()
    except NoHeader:
        raise
    except Exception:
        gpu.reset()
        return traceback.format_exc()
    return None


def serve():
    # Kernels print to standard output; the answers go where it went.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    gpu = Gpu()
    for line in sys.stdin:
        name, architecture = line.split()
        try:
            said = {"error": answer(gpu, name, int(architecture))}
        except NoHeader as missing:
            said = {"skipped": str(missing)}
        print(json.dumps(said), file=replies, flush=True)


def run(names, architectures):
    failed, gpu = 0, Gpu()
    for name in names:
        for architecture in architectures:
            if architecture < all_cases()[name][1]:
                continue
            began = time.perf_counter()
            error = answer(gpu, name, architecture)
            failed += error is not None
            print(f"{'FAILED' if error else 'ok':6} {time.perf_counter() - began:6.2f} s  sm_{architecture}  {name}")
            if error:
                print(error)
            sys.stdout.flush()
    return failed


if __name__ == "__main__":
    if len(sys.argv) == 1:
        serve()
    else:
        chosen = list(all_cases()) if sys.argv[1] == "all" else [sys.argv[1]]
        sys.exit(run(chosen, [int(each) for each in sys.argv[2:]] or ARCHITECTURES) > 0)
