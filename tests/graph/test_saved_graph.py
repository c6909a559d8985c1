"""Graphs in files: they run elsewhere, foreign code only where it is allowed, and differences are found."""

import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import hcq
from hcq import Device, dtypes
from hcq.graph.saved import SavedGraph

SOURCE = """
#include <stdint.h>
void scale(float *out, const float *x, float by, int n) { for (int i = 0; i < n; i++) out[i] = x[i] * by; }
void add(float *out, const float *a, const float *b, int n) { for (int i = 0; i < n; i++) out[i] = a[i] + b[i]; }
"""


@pytest.fixture(scope="module")
def dev():
    return Device["CLANG"]


@pytest.fixture
def recorded(dev):
    scale, add = dev.program("scale", SOURCE), dev.program("add", SOURCE)
    x = hcq.array(np.arange(4, dtype="f4"), "CLANG")
    between, out = (hcq.empty(4, dtypes.float32, "CLANG").fill(0) for _ in range(2))
    kernargs = add.fill_kernargs([out._buf, out._buf, between._buf], (4,))
    with hcq.capture(inputs={"x": x}) as g:
        scale(between, x, vals=(2.0, 4))
        add(out, between, x, vals=(4,))
        dev.hw_compute_queue_t().exec(add, kernargs).submit(dev)
        hcq.copy(x.view(2, dtypes.float32, 8), out.view(2, dtypes.float32, 0))
    return g, x, out


def buffer_of(saved, name):
    return next(number for number, buf in enumerate(saved.described["buffers"]) if name in buf["inputs"])


def run(saved, **options):
    running = saved.on("CLANG", **options)
    running.run()
    return running


def test_what_is_saved_with_its_contents_runs_as_it_did(recorded, tmp_path):
    g, x, _ = recorded
    path = tmp_path / "graph.hcq"
    g.save(path, contents=True)
    g.replay().wait()
    saved = SavedGraph(path)
    running = run(saved)
    assert running.buffer(buffer_of(saved, "x")).numpy().tolist() == x.numpy().tolist() == [0, 1, 0, 5]
    assert len(saved.commands) == 4
    saved.close()


def test_what_was_changed_is_saved_as_it_is_now(recorded, tmp_path):
    g, *_ = recorded
    other = hcq.array(np.ones(4, dtype="f4"), "CLANG")
    g.replay(x=other, vals={"by": 10.0}).wait()
    other.copyin(np.ones(4, dtype="f4"))
    path = tmp_path / "graph.hcq"
    g.save(path, contents=True)
    saved = SavedGraph(path)
    assert run(saved).buffer(buffer_of(saved, "x")).numpy().tolist() == [1, 1, 21, 21]


def test_files_are_zips_of_json_and_bytes_with_a_version(recorded, tmp_path):
    path = tmp_path / "graph.hcq"
    recorded[0].save(path)
    with zipfile.ZipFile(path) as file:
        described = json.loads(file.read("graph.json"))
        assert (described["format"], described["version"]) == ("hcq graph", 1)
        assert file.read("programs/0.src").decode() == SOURCE
        assert not any(name.startswith("buffers/") for name in file.namelist())


def test_a_file_without_contents_runs_on_made_up_numbers(recorded, tmp_path):
    path = tmp_path / "graph.hcq"
    recorded[0].save(path)
    saved = SavedGraph(path)
    assert np.isfinite(run(saved).buffer(buffer_of(saved, "x")).numpy()).all()


def test_binaries_run_only_where_they_are_trusted(recorded, tmp_path):
    path, stripped = tmp_path / "graph.hcq", tmp_path / "stripped.hcq"
    recorded[0].save(path)
    with zipfile.ZipFile(path) as file, zipfile.ZipFile(stripped, "w") as out:
        described = json.loads(file.read("graph.json"))
        for program in described["programs"]:
            del program["source"]
        out.writestr("graph.json", json.dumps(described))
        for name in file.namelist():
            if name.endswith(".bin"):
                out.writestr(name, file.read(name))
    saved = SavedGraph(stripped)
    with pytest.raises(ValueError, match="trusted"):
        saved.on("CLANG")
    run(saved, trust_binaries=True)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:50],
        lambda text: text.replace('"version": 1', '"version": 99'),
        lambda text: text.replace("hcq graph", "other"),
        lambda text: text.replace('"nbytes": 16', '"nbytes": -16'),
        lambda text: text.replace('"nbytes": 16', '"nbytes": 8'),
        lambda text: text.replace('"buffers"', '"others"'),
    ],
)
def test_damaged_and_newer_files_are_refused_before_anything_runs(recorded, tmp_path, damage):
    path, broken = tmp_path / "graph.hcq", tmp_path / "broken.hcq"
    recorded[0].save(path)
    with zipfile.ZipFile(path) as file, zipfile.ZipFile(broken, "w") as out:
        for name in file.namelist():
            data = file.read(name)
            out.writestr(name, damage(data.decode()) if name == "graph.json" else data)
    with pytest.raises(ValueError, match="broken"):
        SavedGraph(broken)
    broken.write_bytes(b"no zip")
    with pytest.raises(ValueError, match="no saved graph"):
        SavedGraph(broken)


def test_a_wait_from_outside_and_unknown_programs_are_refused(dev, tmp_path):
    gate = dev.signal_t()
    with hcq.capture() as g:
        dev.hw_compute_queue_t().wait(gate, 1).submit(dev)
    path = tmp_path / "graph.hcq"
    with pytest.raises(ValueError, match="outside"):
        g.save(path)
    assert not path.exists()


def test_the_first_command_that_differs_is_named(dev, tmp_path):
    kernel = dev.program(
        "which",
        """void which(int *out, const int *x) { static int calls; out[0] = x[0] + calls++ % 2; }""",
    )
    same = dev.program("same", "void same(int *out, const int *x) { out[0] = x[0] + 1; }")
    x, y, z = (hcq.empty(1, dtypes.int32, "CLANG").fill(3) for _ in range(3))
    with hcq.capture() as g:
        same(y, x)
        kernel(z, y)
        same(x, z)
    path = tmp_path / "graph.hcq"
    g.save(path, contents=True)
    saved = SavedGraph(path)
    here, there = saved.on("CLANG"), saved.on("CLANG:1")
    there._programs = here._programs  # one static counter: the second call gives another result
    found = saved.compare(here, there)
    assert (found.command, found.name, found.element, found.values) == (1, "which", 0, (4, 5))


def hcq_replay(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "hcq.cli", "replay", *map(str, arguments)], capture_output=True, text=True, **options
    )


def test_the_command_asks_before_it_runs_foreign_code_and_compares(recorded, tmp_path):
    path = tmp_path / "graph.hcq"
    recorded[0].save(path, contents=True)
    refused = hcq_replay(path, "--device", "CLANG", stdin=subprocess.DEVNULL)
    assert refused.returncode == 2
    assert "--yes" in refused.stderr
    assert "scale" in refused.stderr
    done = hcq_replay(path, "--device", "CLANG", "--compare", "CLANG:1", "--yes")
    assert done.returncode == 0, done.stderr
    assert "agree after each" in done.stdout
    listed = json.loads(hcq_replay(path, "--device", "CLANG:1", "--yes", "--json").stdout)
    assert listed["commands"] == 4
    assert len(listed["buffers"]) == 3
    missing = hcq_replay(tmp_path / "none", "--device", "CLANG")
    assert missing.returncode == 2
    assert "Traceback" not in missing.stderr


def test_python_drivers_save_and_run_too(tmp_path):
    from third_party.mini import MiniDevice

    Device.register("MINI", MiniDevice, replace=True)
    double = Device["MINI"].program("double", 'def double(launch, x: "i32*", n: "i32"):\n    x[0] *= n\n')
    x = hcq.empty(1, dtypes.int32, "MINI").fill(5)
    with hcq.capture(inputs={"x": x}) as g:
        double(x, vals=(3,))
    path = tmp_path / "graph.hcq"
    g.save(path, contents=True)
    running = SavedGraph(path).on("MINI")
    running.run()
    assert running.buffer(0).numpy().tolist() == [15]
    Device.close("MINI")
