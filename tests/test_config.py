"""Environment variables: read when asked, typed, and refused with words where they make no sense."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hcq import config


def test_an_empty_environment_gives_every_default(monkeypatch):
    for name in config.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert config.TIMEOUT_MS() == 30_000
    assert config.KERNEL_TIMEOUT_MS() == 300_000
    assert config.QUEUE_LIMIT() == 64 << 20
    assert config.CACHE_LIMIT() == 2 << 30
    assert config.MEMORY_LIMIT() == 0
    assert config.LRU() is True
    assert config.DISABLE_COMPILER_CACHE() is False
    assert config.CACHE_DIR() is None
    assert all(variable.shown() == variable.default for variable in config.VARIABLES.values())


def test_a_variable_is_read_when_asked(monkeypatch):
    monkeypatch.setenv("HCQ_TIMEOUT_MS", "5")
    assert config.TIMEOUT_MS() == 5
    monkeypatch.setenv("HCQ_TIMEOUT_MS", "7")
    assert config.TIMEOUT_MS() == 7
    monkeypatch.setenv("HCQ_TIMEOUT_MS", "")
    assert config.TIMEOUT_MS() == 30_000


@pytest.mark.parametrize(
    ("text", "on"),
    [
        ("0", False),
        ("1", True),
        ("2", True),
        ("false", False),
        ("Off", False),
        ("yes", True),
        ("", True),
        (" 0 ", False),
    ],
)
def test_a_switch_reads_zero_as_off(monkeypatch, text, on):
    monkeypatch.setenv("LRU", text)
    assert config.LRU() is on


@pytest.mark.parametrize(
    ("text", "size"),
    [("4096", 4096), ("64K", 64 << 10), ("64 KiB", 64 << 10), ("2g", 2 << 30), ("1MB", 1 << 20), ("7B", 7), ("0", 0)],
)
def test_a_size_takes_units(monkeypatch, text, size):
    monkeypatch.setenv("HCQ_CACHE_LIMIT", text)
    assert config.CACHE_LIMIT() == size


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("HCQ_CACHE_LIMIT", "lots"),
        ("HCQ_CACHE_LIMIT", "-1"),
        ("HCQ_TIMEOUT_MS", "1.5"),
        ("LRU", "maybe"),
        ("LRU", "1.0"),
    ],
)
def test_a_value_that_makes_no_sense_is_named(monkeypatch, name, text):
    monkeypatch.setenv(name, text)
    with pytest.raises(ValueError, match=rf"{name}='{text}': expected "):
        config.VARIABLES[name]()


def test_every_variable_is_documented_and_unique():
    assert all(variable.doc.endswith(".") for variable in config.VARIABLES.values())
    assert all(name == variable.name for name, variable in config.VARIABLES.items())


def test_the_reference_lists_every_variable_as_it_is():
    page = (Path(__file__).parent.parent / "docs" / "environment.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    flags = "| `CUDA`, `CLANG`, ... | switch |"
    table = [variable.row() for variable in config.VARIABLES.values()]
    assert [row for row in rows if not row.startswith(flags)] == table, "docs/environment.md:\n" + "\n".join(table)


def run(code, **env):
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **env}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)


def test_import_hcq_brings_nothing_heavy():
    heavy = ["numpy", "llvmlite", "rich", "typer", "platformdirs", "logging", "hcq._native"]
    done = run(f"import hcq, sys; print([m for m in {heavy} if m in sys.modules])")
    assert done.stdout.strip() == "[]", done.stderr


def test_hcq_works_without_any_environment():
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; import hcq; hcq.Device.canonicalize('gpu:0')"],
        env={},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_log_level_is_taken_from_the_environment():
    code = "import hcq; from hcq.runtime.logs import logger; logger('cache').debug('seen')"
    assert "hcq.cache DEBUG seen" in run(code, HCQ_LOG="debug").stderr
    assert run(code).stderr == ""
    assert "is not a level" in run(code, HCQ_LOG="loud").stderr


def test_public_names_are_listed_and_unknown_ones_refused():
    import hcq

    for name in hcq.__all__:
        assert getattr(hcq, name) is not None
    assert {"Device", "Compiled", "Buffer", "cache", "dtypes", "errors"} <= set(dir(hcq))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = hcq.no_such_name
