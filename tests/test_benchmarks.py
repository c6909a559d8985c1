"""The benchmark command itself: every row can be asked and shown. No time is asserted here, and no peer installed."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("benchmarks", reason="the benchmarks are part of the checkout, not of the installed package")

from benchmarks import report
from benchmarks.peers import PEERS, WORKERS
from benchmarks.rows import ROWS
from benchmarks.run import Run
from benchmarks.worker import Worker


def benches(script: Path) -> dict[str, set[str]]:
    """Name -> parameters of every function marked @bench, without importing the worker's peer."""
    found = {}
    for node in ast.parse(script.read_text()).body:
        if isinstance(node, ast.FunctionDef) and any(
            isinstance(d, ast.Name) and d.id == "bench" for d in node.decorator_list
        ):
            found[node.name] = {argument.arg for argument in node.args.args}
        elif isinstance(node, ast.Import):  # of a module beside it
            for beside in (WORKERS / f"{name.name}.py" for name in node.names):
                found |= benches(beside) if beside.exists() else {}
    return found


def test_every_entry_of_every_row_exists_in_its_worker() -> None:
    known = {key: benches(WORKERS / peer.script) for key, peer in PEERS.items()}
    for row in ROWS:
        for entry in row.entries:
            assert entry.bench in known[entry.peer], f"{row.id}: {entry.peer} has no {entry.bench}"
            assert set(entry.parameters) <= known[entry.peer][entry.bench], f"{row.id}: {entry.peer}.{entry.bench}"


def test_rows_have_ids_of_their_own_and_budgets_name_an_entry() -> None:
    assert len({row.id for row in ROWS}) == len(ROWS)
    for row in ROWS:
        if row.budget and row.budget.of:
            assert row.budget.of in {entry.label for entry in row.entries}, row.id


def test_a_row_is_measured_and_a_missing_peer_says_why(tmp_path: Path) -> None:
    row = next(row for row in ROWS if row.id == "signal.query")
    with Run(rounds=2, round_seconds=0.001, quick=True, peers={"hcq", "raw"}) as run:
        result = run.row(row)
        document = {
            "date": "today",
            "quick": True,
            "machine": {"processor": "any", "cores": 1, "system": "any", "Python": "3"},
            "load": {"before": [0.0], "after": [0.0], "others": 0.0},
            "rows": [result],
            "versions": run.versions(),
            "missing": run.missing(),
        }
    by_label = {(entry["peer"], entry["label"]): entry for entry in result["entries"]}
    assert by_label["raw", "attribute of a built-in"]["median"] > 0
    assert "left out" in by_label["PoCL", "event status"]["missing"]
    text = report.markdown(document)
    assert "Missing: PoCL: left out" in text and "signal: query" in text
    report.write_json(document, tmp_path / "kept.json")
    assert json.loads((tmp_path / "kept.json").read_text())["rows"][0]["id"] == "signal.query"


def test_a_part_of_ours_that_fails_fails_the_run() -> None:
    entries = [
        {"peer": "raw", "label": "Vulkan", "error": "does not compile"},
        {"peer": "PoCL", "label": "", "error": "x"},
    ]
    entries += [{"peer": "hcq", "label": "", "missing": "no Vulkan"}, {"peer": "raw", "label": "b", "median": 1.0}]
    assert report.failures({"rows": [{"id": "launch.vulkan", "entries": entries}]}) == [
        "launch.vulkan: Vulkan: does not compile"
    ]


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_the_raw_part_of_vulkan_compiles(tmp_path: Path) -> None:
    root = WORKERS.parent.parent
    parts = [root / "native/vulkan" / f"{name}.cpp" for name in ("loader", "context", "memory", "pipeline")]
    sources = [root / "benchmarks/raw/vulkan.cpp", *parts, root / "native/core/base.cpp"]
    command = ["g++", "-std=c++17", "-fPIC", "-shared", "-Wl,--no-undefined", f"-I{root / 'native'}"]
    done = subprocess.run(
        [*command, *map(str, sources), "-ldl", "-o", str(tmp_path / "raw.so")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


def test_a_worker_whose_threads_still_spin_is_waited_for() -> None:
    """As those of NumPy's BLAS do for a while, on the core that what is measured next should have."""
    worker = Worker.__new__(Worker)
    spin = (
        "import threading\ninput()\nthreading.Thread(target=exec, args=('while 1: 0',), daemon=True).start()\ninput()"
    )
    worker.process = subprocess.Popen([sys.executable, "-c", spin], stdin=subprocess.PIPE)

    def comes(wanted: bool) -> bool:
        until = time.monotonic() + 30
        while worker.runs() != wanted and time.monotonic() < until:
            time.sleep(0.01)
        return worker.runs() == wanted

    try:
        assert comes(False), "it waits for a line"
        assert worker.process.stdin is not None
        worker.process.stdin.write(b"\n")
        worker.process.stdin.flush()
        assert comes(True)
    finally:
        worker.process.kill()
        worker.process.communicate()
    worker.process = None
    assert not worker.runs()


def test_the_figures_go_between_the_marks_only(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nlast year\n{report.END}\nafter\n")
    document = {
        "date": "today",
        "quick": False,
        "machine": {"processor": "any", "cores": 1, "system": "any", "Python": "3"},
        "load": {"before": [0.0], "after": [0.0], "others": 0.0},
        "rows": [],
        "versions": {},
        "missing": {"PoCL": "no registry"},
    }
    report.write_markdown(document, page)
    text = page.read_text()
    assert (
        text.startswith("before\n")
        and text.endswith("after\n")
        and "last year" not in text
        and "PoCL: no registry" in text
    )
