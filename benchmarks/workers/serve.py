"""The worker's half of the protocol: answers one JSON line (what to run) with one JSON line (what it took).

Each peer runs in a process, and mostly in a virtual environment, of its own, so this file needs only the standard
library. A request is `{"bench": name, "n": how often, ...parameters}`. The answer is `{"value": v, ...}`, v in seconds
for one operation (or a plain number, where the row says so), or `{"missing": why}` for what this peer cannot do, or
`{"error": what went wrong}`. Standard output is kept for answers; whatever a library prints goes to standard error.
What rows there are and how rounds interleave is not here.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from typing import Any

Answer = dict[str, Any]
BENCHES: dict[str, Callable[..., Answer | float]] = {}
VERSIONS: dict[str, str] = {}
BEHIND: list[str] = []
"""Where new interpreters find more packages, behind everything else: as if those were installed."""


class Missing(Exception):
    """This peer has no such thing; the message says why."""


def bench(function: Callable[..., Answer | float]) -> Callable[..., Answer | float]:
    """Registers a benchmark under its function's name. It takes n and the row's parameters."""
    BENCHES[function.__name__] = function
    return function


def timed(n: int, call: Callable[[], object]) -> float:
    """Seconds for one of `n` calls without arguments; the loop and the call of a Python function are included."""
    start = time.perf_counter()
    for _ in repeat(None, n):
        call()
    return (time.perf_counter() - start) / n


def sampled(n: int, pause: float, call: Callable[[], object], after: Callable[[], object]) -> float:
    """The median of `n` single calls, each after `pause` seconds of rest; `after` runs between them, untimed.

    The caller's own core is brought back from its rest first, for some 0.1 ms, so that what is measured is the call.
    """
    took = []
    for _ in range(n):
        time.sleep(pause)
        for _ in range(1000):
            time.perf_counter()
        start = time.perf_counter()
        call()
        took.append(time.perf_counter() - start)
        after()
    return statistics.median(took)


def tenths(n: int, launch: Callable[[int], None]) -> Answer:
    """How much slower the last tenth of `n` launches is than the first: medians of ten slices each, since a slice in
    which something else had the core says nothing about the launches. `launch` makes as many as it is told."""
    slices = []
    for _ in range(100):
        start = time.perf_counter()
        launch(n // 100)
        slices.append((time.perf_counter() - start) / (n // 100))
    first, last = statistics.median(slices[:10]), statistics.median(slices[-10:])
    return {"value": last / first, "first tenth": first, "last tenth": last}


def expect(what: str, got: object, wanted: object) -> None:
    """A benchmark that computes something wrong has no time."""
    if got != wanted:
        raise RuntimeError(f"{what}: {got} instead of {wanted}")


@contextmanager
def busy_thread(busy: str) -> Iterator[None]:
    """With busy="thread", a second Python thread computes meanwhile."""
    stop = False

    def work() -> None:
        n = 0
        while not stop:
            n += 1

    if busy != "thread":
        yield
        return
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop = True
        thread.join()


def fresh(setup: str, statement: str, after: str = "") -> Answer:
    """Times `statement` in a new interpreter, once, after `setup`. `after` may fill `extra`, a dict for the answer."""
    script = (
        f"import time, json, sys\nsys.path += {BEHIND!r}\nextra = {{}}\n{setup}\nt = time.perf_counter()\n{statement}\n"
        f"value = time.perf_counter() - t\n{after}\nprint('\\n' + json.dumps(dict(extra, value=value)), flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1])
    answer: Answer = json.loads(done.stdout.splitlines()[-1])
    return answer


def fresh_median(n: int, setup: str, statement: str, after: str = "") -> Answer:
    """The median of `n` new interpreters."""
    answers = [fresh(setup, statement, after) for _ in range(n)]
    return dict(answers[-1], value=statistics.median(a["value"] for a in answers))


def idle_share(setup: str, seconds: float) -> Answer:
    """CPU time over time of a process that did `setup` and then nothing for `seconds`."""
    return fresh(
        setup + "\ntime.sleep(0.3)\nbefore = time.process_time()",
        f"time.sleep({seconds})",
        f"value = (time.process_time() - before) / {seconds}",
    )


@bench
def versions(n: int) -> Answer:
    return {"versions": VERSIONS}


def mappings() -> int:
    with open("/proc/self/maps", encoding="utf-8") as file:
        return sum(1 for _ in file)


def serve() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(answer: Answer) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    say({"ready": True, "benches": sorted(BENCHES), "versions": VERSIONS})
    for line in sys.stdin:
        request = json.loads(line)
        name = request.pop("bench")
        try:
            if name not in BENCHES:
                raise Missing("no such operation there")
            result = BENCHES[name](**request)
            say(result if isinstance(result, dict) else {"value": result})
        except Missing as reason:
            say({"missing": str(reason)})
        except Exception as error:  # whatever a peer raises is its answer, and the run goes on
            text = " ".join(str(error).split())
            say({"error": f"{type(error).__name__}: {text[:300]}"})
