"""Runs the examples of a file in turn and says what came of each, in a process of its own: see core_files.py."""

from __future__ import annotations

import json
import runpy
import sys
import traceback


def main(path: str) -> None:
    for name, function in runpy.run_path(path).items():
        if not name.startswith("example_"):
            continue
        failure = None
        try:
            function()
        except BaseException:
            failure = traceback.format_exc()
        print(json.dumps({name: failure}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
