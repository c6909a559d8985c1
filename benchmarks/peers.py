"""The peers and the virtual environment of each, made from the package registry on first use and kept.

`python -m benchmarks.peers` makes them all beforehand. A peer that cannot be had is not left out of the tables: its
reason stands there instead.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import platformdirs

WORKERS = Path(__file__).parent / "workers"


@dataclass(frozen=True)
class Peer:
    """`requirements` empty: runs in our own interpreter. `key` is used in rows, `label` in tables. `with_hcq`: the
    environment also finds hcq and this checkout, and its figure is ours."""

    key: str
    label: str
    script: str
    requirements: tuple[str, ...] = ()
    with_hcq: bool = False


PEERS: dict[str, Peer] = {
    peer.key: peer
    for peer in (
        Peer("hcq", "hcq", "on_hcq.py"),
        Peer("cudacpu", "hcq.cudacpu", "on_cudacpu.py"),
        Peer("raw", "raw", "on_raw.py"),
        Peer(
            "tghcq",
            "tinygrad 0.9.2 on hcq",
            "on_tinygrad_on_hcq.py",
            ("tinygrad==0.9.2", "numpy<2", "llvmlite>=0.48", "platformdirs>=4"),
            with_hcq=True,
        ),
        # an llvmlite of its year, which still has what its LLVM device calls
        Peer("tg09", "tinygrad 0.9.2", "on_tinygrad_0_9.py", ("tinygrad==0.9.2", "numpy<2", "llvmlite==0.43.*")),
        Peer("tg14", "tinygrad 0.14", "on_tinygrad_0_14.py", ("tinygrad==0.14.*", "numpy")),
        Peer("pocl", "PoCL", "on_pyopencl.py", ("pyopencl", "numpy", "pocl-binary-distribution")),
        Peer("numba", "numba", "on_numba.py", ("numba", "numpy")),
        Peer("numpy", "NumPy", "on_numpy.py", ("numpy",)),
        Peer("safetensors", "safetensors", "on_safetensors.py", ("safetensors", "numpy")),
        Peer("torch", "safetensors, torch", "on_torch.py", ("torch==2.13.0", "safetensors", "numpy")),
    )
}


OURS = frozenset(peer.label for peer in PEERS.values() if peer.key in ("hcq", "cudacpu") or peer.with_hcq)
"""Labels of whose figures are hcq's, which peers and budgets are compared with."""


class PeerMissing(Exception):
    """The peer's environment could not be made; the message is the installer's own last word."""


def directory() -> Path:
    """Where the environments are kept, for all checkouts: HCQ_BENCH_PEERS, else the user's cache directory."""
    return Path(os.environ.get("HCQ_BENCH_PEERS") or platformdirs.user_cache_path("hcq") / "benchmark-peers")


def interpreter(peer: Peer) -> Path:
    """The Python that runs the peer's worker. Makes the environment where there is none, or another."""
    if not peer.requirements:
        return Path(sys.executable)
    home = directory() / f"{peer.key}-py{sys.version_info.major}{sys.version_info.minor}"
    python, stamp = home / "bin" / "python", home / "requirements.txt"
    wanted = "\n".join(peer.requirements) + "\n"
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(home, ignore_errors=True)
    home.parent.mkdir(parents=True, exist_ok=True)
    base = getattr(sys, "_base_executable", sys.executable)
    for command in (
        [base, "-m", "venv", str(home)],
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.requirements],
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        except subprocess.TimeoutExpired:
            raise PeerMissing(
                f"`{Path(command[0]).name} {' '.join(command[1:3])}` took more than five minutes"
            ) from None
        if done.returncode != 0:
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            errors = [line for line in lines if line.startswith("ERROR")] or lines or ["no reason given"]
            raise PeerMissing(errors[-1].removeprefix("ERROR: ").strip())
    stamp.write_text(wanted)
    return python


def main() -> int:
    status = 0
    for peer in PEERS.values():
        try:
            interpreter(peer)
            print(f"{peer.label}: ready", flush=True)
        except PeerMissing as reason:
            print(f"{peer.label}: missing: {reason}", flush=True)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
