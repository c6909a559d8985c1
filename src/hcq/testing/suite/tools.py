"""What several tests of the suite share: buffers of numbers, child processes, waiting without sleeping for a guess."""

from __future__ import annotations

import gc
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import hcq
from hcq.testing.breakages import VARIABLE

I32 = np.dtype(np.int32)
BYTE = np.dtype(np.uint8)
salt = 0  # set for each test by the plugin
PATIENCE = 30.0  # seconds: how long a test waits for what must come; on a loaded machine too


def empty(dev: Any, count: int, dtype: Any = I32, options: Any = None) -> Any:
    """An allocated buffer with `count` elements of no particular contents."""
    return hcq.Buffer(dev.dname, count, dtype, options=options).allocate()


def filled(dev: Any, contents: Any) -> Any:
    """An allocated buffer with these contents, an array or a list of 32-bit integers."""
    array = np.ascontiguousarray(contents, dtype=None if isinstance(contents, np.ndarray) else I32)
    buf = hcq.Buffer(dev.dname, array.size, array.dtype).allocate()
    buf.copyin(array.reshape(-1).view(np.uint8))
    hcq.Device[dev.dname].synchronize()  # staged copies are only queued so far
    return buf


def read(buf: Any, dtype: Any = None) -> np.ndarray:
    """The contents of a buffer as a NumPy array of our own."""
    array = np.empty(buf.nbytes // np.dtype(dtype or buf.dtype).itemsize, dtype=dtype or buf.dtype)
    buf.copyout(array.view(np.uint8))
    return array


def noise(count: int, seed: int = 0) -> np.ndarray:
    """Reproducible bytes without a pattern that a shifted or shortened copy could match, others in each test: what an
    earlier one left in memory must not pass for a copy."""
    return np.random.default_rng([salt, seed]).integers(0, 256, count, dtype=np.uint8)


def address(buf: Any) -> int:
    return int(buf._buf.va_addr)


def live(device: str) -> tuple[int, int]:
    """(bytes, count) of the live buffers of a device."""
    gc.collect()
    stats = hcq.memory_stats(device)
    return stats.live_bytes, stats.live_count


def eventually(condition: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    """Whether `condition` comes true; looks again and again, sleeping a little, until the patience ends."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


def later(function: Callable[[], Any], seconds: float = 0.05) -> threading.Thread:
    """Calls `function` in another thread after a while."""

    def run() -> None:
        time.sleep(seconds)
        function()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def together(*functions: Callable[[], Any]) -> list[Any]:
    """Runs functions in threads that start as one; gives their results, or raises the first of their exceptions."""
    gate = threading.Barrier(len(functions))
    results: list[Any] = [None] * len(functions)
    errors: list[BaseException] = []

    def run(number: int, function: Callable[[], Any]) -> None:
        try:
            gate.wait()
            results[number] = function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(n, f), daemon=True) for n, f in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(4 * PATIENCE)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]
    return results


def in_child(function: Callable[[], Any]) -> Any:
    """What `function` returns in a forked child, which then ends; an exception comes back as 'Type: message'."""
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            try:
                answer: Any = function()
            except BaseException as error:
                answer = f"{type(error).__name__}: {error}"
            os.write(send, pickle.dumps(answer))
        finally:
            os._exit(0)
    os.close(send)
    try:
        data = b""
        while True:
            ready, _, _ = select.select([receive], [], [], PATIENCE)
            if not ready:
                os.kill(pid, signal.SIGKILL)
                raise AssertionError("the forked child hangs")
            part = os.read(receive, 65536)
            if not part:
                break
            data += part
    finally:
        os.close(receive)
        _, status = os.waitpid(pid, 0)
    assert data, f"the forked child died (status {status})"
    return pickle.loads(data)


def python(code: str, timeout: float = 60, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs code in a fresh interpreter that imports what this one imports; a variable set to '' is left out."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **(env or {})}
    variables = {name: value for name, value in variables.items() if value != "" or name not in (env or {})}
    if breakage := os.environ.get(VARIABLE):
        code = f"from hcq.testing import breakages; breakages.apply_for_good({breakage!r})\n{code}"
    # Linux takes 128 KiB an argument at most; kernels that are bytes are four times as long in a program's text.
    how, given = (["-c", code], None) if len(code) < 100_000 else (["-"], code)
    return subprocess.run(
        [sys.executable, *how], input=given, capture_output=True, text=True, timeout=timeout, env=variables, check=False
    )


def printed(code: str, **options: Any) -> str:
    """What the code prints in a fresh interpreter, which must end well and write nothing on stderr."""
    done = python(code, **options)
    assert done.returncode == 0 and done.stderr == "", f"status {done.returncode}: {done.stderr}"
    return done.stdout.strip()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident() -> int:
    """Bytes of memory that this process has in use."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def native_threads() -> int:
    return len(os.listdir("/proc/self/task"))
