"""The command line: what it prints for people and for programs, its exit codes, and mistakes without a traceback."""

import json
import os
import subprocess
import sys

import pytest

import hcq
from hcq.cli.app import app


def run(*arguments, module="hcq.cli", **environment):
    """Runs `hcq ARGUMENTS`; gives exit code, standard output, standard error."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env={**os.environ, **environment})
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def here(capsys):
    """As `run`, in this process: faster, for what needs no environment of its own."""

    def run_here(*arguments):
        with pytest.raises(SystemExit) as left:
            app(arguments, prog_name="hcq")
        printed = capsys.readouterr()
        return left.value.code or 0, printed.out, printed.err

    return run_here


@pytest.mark.parametrize("module", ["hcq", "hcq.cli"])
def test_the_command_runs_as_a_program_and_prints_its_version(module):
    assert run("--version", module=module) == (0, f"hcq {hcq.__version__}\n", "")


def test_importing_hcq_imports_neither_typer_nor_rich():
    check = "import sys, hcq, hcq.cli; sys.exit(any(name in sys.modules for name in ('typer', 'rich', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", check], timeout=60).returncode == 0


@pytest.mark.parametrize("command", ["devices", "doctor", "cache", "demo", "conformance"])
def test_every_command_has_help(command, here):
    code, out, err = here(command, "--help")
    assert code == 0 and "Usage" in out and not err


def test_devices_lists_every_known_driver_with_the_reason_it_does_not_open(here):
    out = here("devices", "--json")[1]
    rows = {row["name"]: row for row in json.loads(out)}
    assert list(rows) == hcq.Device._devices
    assert rows["METAL"]["state"] == "unavailable" and rows["METAL"]["reason"] == "not built yet"
    assert rows["METAL"]["hint"]
    assert all(row["reason"] or row["state"] == "open" for row in rows.values())


def test_an_open_device_without_its_compiler_says_so_and_what_to_do():
    code, out, _ = run("devices", "CLANG", HCQ_CC="/nope/cc")
    assert code == 0 and "open, no C compiler" in out and "unset it, or name a C compiler" in " ".join(out.split())
    code, out, _ = run("devices", "CLANG", "--json", HCQ_CC="/nope/cc")
    row = json.loads(out)[0]
    assert (row["state"], row["reason"]) == ("open", "no C compiler") and "/nope/cc" in row["hint"]
    assert "open, no C compiler" not in run("devices", "CLANG")[1]


def test_square_brackets_in_what_to_do_are_shown(here):
    def absent(name):
        raise hcq.errors.DeviceUnavailable("no package [x]", "pip install 'hcq[absent]'")

    hcq.Device.register("ABSENT", absent)
    try:
        out = here("devices", "ABSENT")[1]
    finally:
        hcq.Device.unregister("ABSENT")
    assert "hcq[absent]" in out and "no package [x]" in out


def test_what_to_do_about_devices_keeps_the_names_of_variables(here):
    def absent(name):
        raise hcq.errors.DeviceUnavailable("not here", "HCQ_ABSENT=cpu runs ABSENT elsewhere")

    hcq.Device.register("ABSENT", absent)
    try:
        out = here("devices", "ABSENT")[1]
    finally:
        hcq.Device.unregister("ABSENT")
    assert "HCQ_ABSENT=cpu runs it elsewhere" in " ".join(out.split())


def test_a_device_named_that_does_not_open_fails_and_says_why(here):
    code, out, err = here("devices", "METAL")
    assert code == 1 and "not built yet" in out and "Traceback" not in err


def test_an_unknown_device_is_a_mistake_and_names_the_nearest(here):
    code, out, err = here("devices", "METTAL")
    assert code == 2 and "'METAL'" in err and "Traceback" not in err and not out


def test_a_wrong_variable_is_a_mistake_that_the_doctor_survives():
    code, out, err = run("devices", HCQ_CPU_THREADS="many")
    assert code == 2 and "HCQ_CPU_THREADS='many'" in err and not out
    code, out, _ = run("doctor", HCQ_CPU_THREADS="many")
    assert code == 0 and "many" in out


def test_devices_says_why_there_is_no_default():
    out = run("devices", HCQ_DEVICE="CLANK")[1]
    assert "no default device: HCQ_DEVICE=CLANK" in out


def test_doctor_shows_no_value_of_a_foreign_variable_and_hides_the_home_directory(tmp_path):
    code, out, err = run("doctor", SECRET_TOKEN="hunter2", HOME=str(tmp_path), HCQ_CPU_THREADS="1", HCQ_LOG="")
    assert code == 0 and not err
    assert "hunter2" not in out and str(tmp_path) not in out
    assert "HCQ_CPU_THREADS" in out


def test_doctor_as_json_has_the_same_sections(here):
    code, out, _ = here("doctor", "--json")
    page = json.loads(out)
    assert code == 0 and page["hcq"]["version"] == hcq.__version__
    assert {"machine", "limits", "libraries", "C compilers", "compile cache", "environment", "devices"} <= set(page)
    assert set(page["devices"]) == set(hcq.Device._devices)


def test_conformance_without_a_device_is_a_mistake(here):
    code, _, err = here("conformance")
    assert code == 2 and "--device" in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("option", "named", "said"),
    [
        ("--device", "CLAMG", "Did you mean 'CLANG'?"),
        ("--device", "METAL", "not built yet"),
        ("--device", "METAL", "Device['CPU'] works everywhere"),
        ("--device", "NPY", "no queues or kernels to conform"),
        ("--driver", "nope.x:y", "No module named 'nope'"),
        ("--driver", "nope", "expected module:attribute"),
        ("--driver", "os:path", "names no DriverUnderTest"),
    ],
)
def test_conformance_of_what_is_no_device_or_driver_is_one_line_before_any_test(here, option, named, said, monkeypatch):
    monkeypatch.setitem(sys.modules, "hypothesis", None)  # asked for only once there is something to run on
    code, out, err = here("conformance", option, named)
    assert code == 2 and said in err and not out
    assert len(err.splitlines()) == 1 and "Traceback" not in err and "hypothesis" not in err


def test_conformance_without_its_packages_says_how_to_get_them(here, monkeypatch):
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    code, _, err = here("conformance", "--device", "NULL")
    assert code == 2 and "pip install 'hcq[test]'" in err and "scripts/setup-venv test" in err


@pytest.fixture
def kept(tmp_path):
    """A compile cache of its own with one entry; gives the environment that names it, and the entry's source."""
    environment = {"HCQ_CACHE_DIR": str(tmp_path / "cache"), "HCQ_DEVICE": "NULL"}
    source = tmp_path / "kernel.txt"
    source.write_text("nothing at all")
    body = "import sys, hcq; hcq.Compiler('cli').compile_cached(sys.argv[1])"
    command = [sys.executable, "-c", body, source.read_text()]
    subprocess.run(command, check=True, timeout=60, env={**os.environ, **environment})
    return environment


def test_cache_ls_lists_entries_with_what_they_were_made_from(kept):
    code, out, _ = run("cache", "ls", "--json", **kept)
    listed = json.loads(out)
    assert code == 0 and [row["key"]["source"] for row in listed["entries"]] == ["nothing at all"]
    code, out, _ = run("cache", "ls", **kept)
    assert code == 0 and "1 entries" in out and "nothing at all" in out


def test_cache_verify_finds_damage_and_removes_it(kept):
    assert run("cache", "verify", **kept)[0] == 0
    path = json.loads(run("cache", "ls", "--json", **kept)[1])["entries"][0]["path"]
    with open(path, "r+b") as file:
        file.truncate(os.path.getsize(path) - 1)
    code, out, _ = run("cache", "verify", **kept)
    assert code == 1 and path in out
    assert run("cache", "verify", "--remove", **kept)[0] == 0
    assert run("cache", "verify", **kept)[0] == 0 and not os.path.exists(path)


def test_cache_clear_empties_it_without_asking_a_pipe(kept):
    assert run("cache", "clear", **kept) == (0, "1 entries deleted\n", "")
    assert json.loads(run("cache", "ls", "--json", **kept)[1])["entries"] == []


def test_explaining_a_file_that_is_not_there_is_a_mistake(tmp_path, here):
    code, _, err = here("cache", "explain", str(tmp_path / "missing.c"))
    assert code == 2 and "missing.c" in err and "Traceback" not in err


def test_cache_explain_tells_a_hit_from_a_changed_source(kept, tmp_path):
    source = tmp_path / "kernel.c"
    source.write_text("void f(int *x) { *x = 1; }")
    body = "import sys, hcq; hcq.Device['CLANG'].program('f', open(sys.argv[1]).read())"
    subprocess.run([sys.executable, "-c", body, str(source)], check=True, timeout=60, env={**os.environ, **kept})
    code, out, _ = run("cache", "explain", str(source), "--device", "CLANG", **kept)
    assert code == 0 and out.startswith("CLANG: hit: on disk")
    source.write_text("void f(int *x) { *x = 2; }")
    code, out, _ = run("cache", "explain", str(source), "--device", "CLANG", "--json", **kept)
    found = json.loads(out)
    assert code == 0 and not found["hit"] and found["changed"] == ["source"]


def test_bench_hands_its_arguments_to_the_benchmarks_of_the_checkout():
    code, out, err = run("bench", "--list")
    assert code == 0 and "launch" in out, err


def test_conformance_lists_promises_without_a_test(here):
    code, out, _ = here("conformance", "--list")
    assert code == 0 and "promises:" in out


def test_conformance_hands_further_arguments_to_pytest_and_its_exit_code_on():
    code, out, err = run("conformance", "--device", "CLANG", "--", "-k", "no_test_is_called_so")
    assert code == 5 and "deselected" in out, err


def test_conformance_finds_a_description_in_the_current_folder(tmp_path):
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "suite.py").write_text("from hcq.testing.driver import DriverUnderTest\ndriver = 1\n")
    start = "import sys; sys.path.remove('') if '' in sys.path else None; from hcq.cli import main; main()"  # as `hcq`
    paths = os.pathsep.join(os.path.abspath(path) for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-c", start, "conformance", "--driver", "mine.suite:driver"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.returncode == 2
    assert "mine.suite:driver names no DriverUnderTest" in done.stderr  # so it was found and imported


@pytest.mark.parametrize("options", [("--device", "NPY"), ("--device", "CLANG", "--compare", "NPY")])
def test_replay_on_a_device_that_runs_nothing_is_one_line(here, options, tmp_path):
    code, out, err = here("replay", str(tmp_path / "graph.hcq"), *options)
    assert code == 2 and not out
    assert err == "hcq: NPY has no queues or kernels to replay a graph on: it only holds data\n"


def test_trace_into_a_folder_that_is_not_there_runs_nothing(here, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("raise SystemExit(77)")
    for options in (("-o", str(tmp_path / "nope" / "x.json")), ("--plot", str(tmp_path / "nope" / "x.svg"))):
        code, _, err = here("trace", *options, str(script))
        assert code == 2 and "there is no folder" in err and len(err.splitlines()) == 1


def test_cache_explain_says_of_a_new_source_that_it_was_never_compiled(tmp_path):
    source = tmp_path / "new.c"
    environment = {"HCQ_CACHE_DIR": str(tmp_path / "cache")}
    compile_it = "import hcq, sys; hcq.Device['CLANG'].compiler.compile_cached('void f(int *x) { x[0] = 1; }')"
    subprocess.run([sys.executable, "-c", compile_it], timeout=60, check=True, env={**os.environ, **environment})
    source.write_text("void g(int *x) { x[0] = 2; }")
    code, out, err = run("cache", "explain", "--device", "CLANG", str(source), **environment)
    assert code == 0 and "miss: this source was never compiled" in out, err


KERNELS = """import hcq

@hcq.kernel
def scale(x: hcq.ptr, by: hcq.constexpr):
    i = hcq.global_id(0)
    x[i] = x[i] * by
"""


def test_kernel_show_prints_a_kernel_in_every_language(tmp_path, here):
    path = tmp_path / "shown_kernels.py"
    path.write_text(KERNELS)
    for target, said in (("ir", "kernel scale(x: ptr<f32, global>)"), ("c", "scale("), ("LLVM", "define void @scale")):
        code, out, err = here("kernel", "show", f"{path}:scale", "x=f32", "by=2", "--target", target)
        assert (code, err) == (0, "") and said in out


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (["{}:scale", "x=f32"], 2, "the constant by needs a value"),
        (["{}:nothing"], 2, "it has scale"),
        (["{}:scale", "x=f99", "by=1"], 2, "'f99' is neither a type"),
        (["{}:scale", "x=f32", "by=2", "--target", "wgsl"], 2, "--target wgsl is no language (llvm, c, opencl"),
        (["{}"], 2, "names no kernel"),
        (["nowhere.at_all:scale"], 2, "can't be imported"),
        (["{}.py:scale"], 2, "there is no file"),
        (["{}:scale", "x=bool", "by=1.5"], 1, "f64 can't be stored as bool"),
    ],
)
def test_kernel_show_words_what_it_can_not_show(arguments, exit_code, said, tmp_path, here):
    path = tmp_path / "shown_kernels.py"
    path.write_text(KERNELS)
    code, out, err = here("kernel", "show", *[each.format(path) for each in arguments])
    assert (code, out) == (exit_code, "") and said in err and "Traceback" not in err
