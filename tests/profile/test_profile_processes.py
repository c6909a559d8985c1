"""PROFILE=1, forked children, and `hcq trace`."""

import os
import subprocess
import sys
from collections import Counter

import pytest
from profile_tools import I32, C, buffer, events, of

import hcq


def run(code, tmp_path, *arguments, **environment):
    command = [sys.executable, *(["-c", code] if code else []), *arguments]
    clean = {k: v for k, v in os.environ.items() if k not in ("PROFILE", "PROFILEPATH", "HCQ_PROFILE_OWNER")}
    path = os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))
    environment = {**clean, "PYTHONPATH": path, **environment}
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)


PROGRAM = f"""
import hcq
dev = hcq.Device["CLANG"]
a = hcq.Buffer("CLANG", 16, hcq.dtypes.int32).allocate()
prg = dev.program("one", {C!r})
prg(a)
prg(a)
"""


def test_profile_1_writes_a_trace_when_the_interpreter_leaves(tmp_path):
    done = run(PROGRAM, tmp_path, PROFILE="1", PROFILEPATH="mine.json")
    assert done.returncode == 0 and "mine.json" in done.stderr and not done.stdout
    assert os.listdir(tmp_path) == ["mine.json"]
    assert sum(event["name"] == "one" for event in events(tmp_path / "mine.json")) == 2


def test_profile_0_and_none_write_nothing(tmp_path):
    for environment in ({}, {"PROFILE": "0"}, {"PROFILE": ""}):
        done = run(PROGRAM, tmp_path, **environment)
        assert done.returncode == 0 and not done.stderr and not os.listdir(tmp_path)


def test_profile_1_without_a_path_names_the_file_after_the_process(tmp_path):
    done = run(PROGRAM, tmp_path, PROFILE="1")
    (name,) = os.listdir(tmp_path)
    assert name.startswith("hcq-") and name in done.stderr


def test_profile_1_in_children_writes_files_of_their_own(tmp_path):
    code = (
        PROGRAM
        + """
import os, subprocess, sys
if len(sys.argv) == 1:
    subprocess.run([sys.executable, "-c", open("program").read(), "child"], check=True)
    pid = os.fork()
    if pid == 0:
        dev = hcq.Device["CLANG"]
        b = hcq.Buffer("CLANG", 16, hcq.dtypes.int32).allocate()
        dev.program("two", SOURCE)(b)
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
"""
    ).replace("SOURCE", repr(C))
    (tmp_path / "program").write_text(code)
    done = run(code, tmp_path, PROFILE="1", PROFILEPATH="mine.json")
    assert done.returncode == 0, done.stderr
    found = {}
    for name in os.listdir(tmp_path):
        if name.endswith(".json"):
            found[name] = Counter(e["name"] for e in events(tmp_path / name) if e.get("cat") == "kernel")
    assert len(found) == 3 and found.pop("mine.json") == {"one": 2}
    assert sorted(map(dict, found.values()), key=str) == [{"one": 2}, {"two": 1}]


def test_a_child_forked_inside_a_profile_records_nothing_of_it(clang):
    a, program = buffer(), clang.program("one", C)
    with hcq.profile() as p:
        program(a)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                inner = hcq.Device["CLANG"]
                b = hcq.Buffer("CLANG", 4, I32).allocate()
                inner.program("two", C)(b, wait=True)
                with hcq.profile() as own:
                    inner.program("two", C)(b)
                seen = [span.name for span in own.spans if span.kind == "kernel"]
                try:
                    p.stop()
                    _ = p.spans
                except hcq.errors.ForkedDeviceError:
                    code = 0 if seen == ["two"] else 2
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        program(a)
    assert [span.name for span in of(p, "kernel")] == ["one", "one"]


def test_hcq_trace_runs_a_script_with_its_arguments_and_keeps_its_exit_code(tmp_path):
    (tmp_path / "helper.py").write_text("value = 3\n")
    (tmp_path / "script.py").write_text(
        PROGRAM + "import sys, helper\nprint(sys.argv, __name__)\nsys.exit(helper.value)\n"
    )
    done = run("", tmp_path, "-m", "hcq.cli", "trace", "-o", "t.json", "--table", "script.py", "-x", "--output", "y")
    assert done.returncode == 3, done.stderr
    assert done.stdout.strip() == "['script.py', '-x', '--output', 'y'] __main__"
    assert "t.json" in done.stderr and "kernel" in done.stderr
    assert sum(event["name"] == "one" for event in events(tmp_path / "t.json")) == 2


def test_hcq_trace_runs_a_module_as_python_does(tmp_path):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    (tmp_path / "pack" / "helper.py").write_text("value = 3\n")
    text = "import os, sys\nfrom . import helper\nprint(os.path.basename(sys.argv[0]), sys.argv[1:], __name__)"
    (tmp_path / "pack" / "__main__.py").write_text(f"{PROGRAM}{text}\nsys.exit(helper.value)\n")
    (tmp_path / "pack" / "wrong.py").write_text(PROGRAM + "raise ZeroDivisionError('mine')\n")
    plain = run("", tmp_path, "-m", "pack", "-m", "--plot")
    done = run("", tmp_path, "-m", "hcq.cli", "trace", "-o", "t.json", "-m", "pack", "-m", "--plot")
    assert (done.returncode, done.stdout) == (plain.returncode, plain.stdout) == (3, done.stdout), done.stderr
    assert done.stdout == "__main__.py ['-m', '--plot'] __main__\n"
    assert sum(event["name"] == "one" for event in events(tmp_path / "t.json")) == 2
    done = run("", tmp_path, "-m", "hcq.cli", "trace", "-m", "pack.wrong")
    assert done.returncode == 1 and "ZeroDivisionError: mine" in done.stderr and "runpy" not in done.stderr
    assert any(name.startswith("wrong.") for name in os.listdir(tmp_path))
    for wrong in ("nothing", "nothing.at.all", "pack.nothing"):
        done = run("", tmp_path, "-m", "hcq.cli", "trace", "-m", wrong)
        assert done.returncode == 2 and "Traceback" not in done.stderr and wrong in done.stderr


def test_hcq_trace_writes_the_trace_of_a_script_that_raises(tmp_path):
    (tmp_path / "script.py").write_text(PROGRAM + "raise ZeroDivisionError('mine')\n")
    done = run("", tmp_path, "-m", "hcq.cli", "trace", "-o", "t.json", "--plot", "t.svg", "script.py")
    assert done.returncode == 1 and "ZeroDivisionError: mine" in done.stderr and "runpy" not in done.stderr
    assert {"t.json", "t.svg"} <= set(os.listdir(tmp_path))
    for wrong in (["nothing.py"], ["-o", "t.txt", "script.py"], ["--plot", "t.png", "script.py"]):
        done = run("", tmp_path, "-m", "hcq.cli", "trace", *wrong)
        assert done.returncode == 2 and "Traceback" not in done.stderr and not done.stdout


def test_an_estimate_for_a_kernel_that_was_not_recorded_names_those_that_were(clang):
    one, two = (clang.program(name, C) for name in ("one", "two"))
    a = buffer()
    with hcq.profile().estimate("spin", flops=1) as p:  # before the end nobody knows what will run
        p.estimate("typo", flops=1)
        one(a)
        two(a)
    with pytest.raises(ValueError, match="no kernel 'typo' was recorded: there is one, two"):
        p.estimate("typo", flops=1)
    assert p.estimate("one", flops=1) is p
