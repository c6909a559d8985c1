"""How programs are run, and that the processes they start have hcq as their device layer too."""

import subprocess
import sys

import pytest
from hcq_tinygrad_hook import HERE, STARTUP, VERSION
from running import ROOT, client, environment

SHOWN = "import tinygrad.device, tinygrad; print(tinygrad.device.__file__)"
OURS = f"{HERE}/served/device.py"


@pytest.fixture
def script(tmp_path):
    def write(text, name="program.py"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_a_script_runs_as_python_runs_it(script):
    path = script(
        "import sys, helper\nfrom tinygrad import Tensor\n"
        "if __name__ == '__main__': print(sys.argv[1:], helper.__name__, __file__, (Tensor([1, 2]) + 1).tolist())"
    )
    script("", "helper.py")
    assert client(path, "a", "-b") == f"['a', '-b'] helper {path} [2, 3]\n"


def test_modules_and_code_run_too(script):
    script("import sys\nprint(sys.argv[1:], __name__)\n" + SHOWN, "module.py")
    folder = script("", "unused.py").parent
    path = f"{environment()['PYTHONPATH']}:{ROOT}:{folder}"
    assert client("-m", "module", "x", PYTHONPATH=path) == f"['x'] __main__\n{OURS}\n"
    assert client("-c", "import sys; print(sys.argv)", "y") == "['-c', 'y']\n"


def test_pytest_runs_a_programs_own_tests(script):
    text = """
import hcq
from tinygrad import Device, Tensor
def test_it():
    assert (Tensor([1]) + 1).item() == 2
    assert isinstance(Device[Device.DEFAULT], hcq.HCQCompiled)
"""
    path = script(text, "test_program.py")
    assert "1 passed" in client("-m", "pytest", "-q", "-p", "no:cacheprovider", path)


def test_an_error_and_an_exit_status_are_the_programs(script):
    path = script("import sys\nsys.exit(3)")
    command = [sys.executable, "-m", "tests.clients.tinygrad", str(path)]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, timeout=60, check=False)
    assert done.returncode == 3


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_spawned_workers_have_it(script, method):
    path = script(f"""
import multiprocessing as mp
def where(n):
    import tinygrad.device
    from tinygrad import Tensor
    return tinygrad.device.__file__, (Tensor([n], device="CLANG") + 1).item()
if __name__ == "__main__":
    with mp.get_context({method!r}).Pool(2) as pool:
        for file, value in pool.map(where, [1, 2]): print(file, value)
""")
    assert client(path) == f"{OURS} 2\n{OURS} 3\n"


def test_a_forked_worker_opens_devices_of_its_own(script):
    path = script("""
import multiprocessing as mp
from tinygrad import Tensor
def work(n): return (Tensor([n], device="CLANG") + 1).item()
if __name__ == "__main__":
    assert work(5) == 6
    with mp.get_context("fork").Pool(2) as pool: print(pool.map(work, [1, 2]))
    assert work(6) == 7
""")
    assert client(path) == "[2, 3]\n"


def test_a_search_compiles_in_spawned_workers(script, tmp_path):
    path = script("""
from tinygrad import Tensor
if __name__ == "__main__":
    x = Tensor.rand(12, 12).realize()
    y = (x @ x).realize()
    from tinygrad.engine import search
    print(search.beam_pool is not None, abs(float((y - x @ x).sum().item())) < 1e-3)
""")
    more = {"BEAM": "1", "PARALLEL": "1", "CLANG": "1", "CACHEDB": str(tmp_path / "c.db")}
    assert client(path, **more) == "True True\n"


def test_other_python_processes_have_it(script):
    path = script(f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {SHOWN!r}])")
    assert client(path) == f"{OURS}\n"


def test_what_the_start_of_python_did_before_is_still_done(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.customized = 'yes'")
    path = f"{environment()['PYTHONPATH']}:{ROOT}:{tmp_path}"
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(customized)'])"
    assert client("-c", code, PYTHONPATH=path) == "yes\n"


def test_tinygrad_imported_before_the_hook_is_an_error():
    code = "import tinygrad, hcq_tinygrad_hook as h\ntry: h.install()\nexcept RuntimeError as e: print(e)"
    env = environment(PYTHONPATH=f"{environment()['PYTHONPATH']}:{HERE}")
    code = code.replace("hcq_tinygrad_hook", "hook")
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=True)
    assert "imported before the hook" in done.stdout


def test_the_hook_is_put_in_once():
    code = (
        "import os, sys; from tests.clients.tinygrad import hook; hook.install(); hook.install(); "
        "print([f.__name__ for f in sys.meta_path if getattr(f, '__name__', '') == 'ServedFinder'], "
        "os.environ['PYTHONPATH'].split(os.pathsep).count(hook.STARTUP))"
    )
    assert client("-c", code, PYTHONPATH=f"{environment()['PYTHONPATH']}:{ROOT}") == "['ServedFinder'] 1\n"
    assert STARTUP and VERSION == "0.9.2"
