"""Our end of the protocol: a peer's process, asked one question at a time (the other end is workers/serve.py)."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.peers import WORKERS, Peer, PeerMissing, interpreter

Answer = dict[str, Any]
START_LIMIT = 60.0
TICKS = os.sysconf("SC_CLK_TCK")
ROOT = Path(__file__).resolve().parent.parent


def built_in_place() -> bool:
    return any((ROOT / "src" / "hcq").glob("_native*.so"))


class Worker:
    """A running peer. Started at the first question; started again after it died or was stopped for not answering."""

    def __init__(self, peer: Peer, scratch: Path) -> None:
        self.peer = peer
        self.scratch = scratch
        self.process: subprocess.Popen[bytes] | None = None
        self.missing: str | None = None
        self.versions: dict[str, str] = {}
        self.pending = b""
        self.cpu_before = 0.0
        self.log = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as the worker

    def ask(self, bench: str, n: int, parameters: dict[str, Any], limit: float) -> Answer:
        """One measurement. Never raises for what the peer does: silence, death and missing things are answers."""
        if self.process is None:
            self._start()
        if self.missing is not None:
            return {"missing": self.missing}
        assert self.process is not None and self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"bench": bench, "n": n, **parameters}).encode() + b"\n")
            self.process.stdin.flush()
            return self._read(limit)
        except TimeoutError:
            self.stop()
            return {"error": f"no answer within {limit:.0f} s; stopped"}
        except (BrokenPipeError, EOFError):
            return {"error": f"the process ended: {self._last_words()}"}

    def cpu_seconds(self) -> float:
        """CPU time of this worker and of the children it has waited for."""
        if self.process is None:
            return self.cpu_before
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            return self.cpu_before
        return self.cpu_before + sum(int(t) for t in fields[11:15]) / TICKS

    def runs(self) -> bool:
        """Whether a thread of this worker runs, or would if it had a core."""
        if self.process is None:
            return False
        for stat in Path(f"/proc/{self.process.pid}/task").glob("*/stat"):
            try:
                if stat.read_text().rsplit(")", 1)[1].split()[0] == "R":
                    return True
            except OSError:  # it is gone
                continue
        return False

    def stop(self) -> None:
        """Ends the process and all that it started (it leads a process group of its own)."""
        if self.process is None:
            return
        self.cpu_before = self.cpu_seconds()
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:  # an unsent question to a dead process
                    pass
        self.process = None
        self.pending = b""

    def _start(self) -> None:
        if self.missing is not None:
            return
        try:
            python = interpreter(self.peer)
        except PeerMissing as reason:
            self.missing = str(reason)
            return
        # Caches of their own, so that a run neither uses nor fills the user's.
        scratch = self.scratch / self.peer.key
        scratch.mkdir(exist_ok=True)
        inherited = dict(os.environ)
        inherited.pop("PYTHONDONTWRITEBYTECODE", None)  # an import that compiles every time is nobody's
        if self.peer.with_hcq:
            import hcq  # wherever this interpreter has it from, the peer's has it too

            inherited["PYTHONPATH"] = os.pathsep.join([str(Path(hcq.__file__).parent.parent), str(ROOT)])
        elif self.peer.requirements:
            inherited.pop("PYTHONPATH", None)
        else:  # hcq as it stands in this checkout, where it was built in place
            paths = [str(ROOT / "src"), inherited.get("PYTHONPATH", "")] if built_in_place() else []
            inherited |= {"PYTHONPATH": os.pathsep.join(p for p in paths if p)} if paths else {}
        environment = {
            **inherited,
            "HCQ_BENCH_SCRATCH": str(scratch),
            "CACHEDB": str(scratch / "cache.db"),
            "HCQ_CACHE_DIR": str(scratch / "hcq"),
            "XDG_CACHE_HOME": str(scratch),
        }
        self.process = subprocess.Popen(
            [str(python), str(WORKERS / self.peer.script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=environment,
            start_new_session=True,
        )
        try:
            ready = self._read(START_LIMIT)
            self.versions = ready["versions"]
        except TimeoutError:
            self.stop()
            self.missing = f"did not start within {START_LIMIT:.0f} s"
        except EOFError:
            self.missing = f"its worker does not start: {self._last_words()}"

    def all_versions(self) -> dict[str, str]:
        """What runs there; some versions are known only once something was used."""
        if self.process is not None:
            self.versions = self.ask("versions", 1, {}, 10.0).get("versions", self.versions)
        return self.versions

    def _read(self, limit: float) -> Answer:
        assert self.process is not None and self.process.stdout is not None
        pipe = self.process.stdout.fileno()
        end = time.monotonic() + limit
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while b"\n" not in self.pending:
                left = end - time.monotonic()
                if left <= 0 or not selector.select(left):
                    raise TimeoutError
                data = os.read(pipe, 1 << 16)
                if not data:
                    raise EOFError
                self.pending += data
        line, self.pending = self.pending.split(b"\n", 1)
        answer: Answer = json.loads(line)
        return answer

    def _last_words(self) -> str:
        self.stop()
        self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, self.log.tell() - 4096))
        lines = self.log.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "it said nothing"
