"""Who has the CUDA driver on the CPU: programs run with it, the processes they start, and nobody by accident."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
USES = """
import ctypes
import driver, numpy as np
from launch_checks import IOTA
def use():
    driver.fresh()
    result = np.zeros(64, np.uint32)
    driver.run(driver.kernel(IOTA), 2, 32, result, 1)
    assert (result == np.arange(64) + 1).all()
"""


def python(*arguments, code=0):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE), *sys.path]))}
    environment.pop("LD_LIBRARY_PATH", None)
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=60, cwd=HERE
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_scripts_modules_and_code_run_with_the_driver(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(USES + "use()\nimport sys\nprint(sys.argv, __name__)")
    assert python("-m", "hcq.cudacpu", str(script), "a", "-b").strip() == f"['{script}', 'a', '-b'] __main__"
    assert "['-c', 'x'] ok" in python("-m", "hcq.cudacpu", "-c", USES + "use()\nimport sys; print(sys.argv, 'ok')", "x")
    assert "usage: python -m json.tool" in python("-m", "hcq.cudacpu", "-m", "json.tool", "--help")
    assert "usage: python -m hcq.cudacpu" in python("-m", "hcq.cudacpu", code=2)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nowhere.py"], 2, "there is no 'nowhere.py'"),
        (["-u", "-c", "1"], 2, "python -u -m hcq.cudacpu"),
        (["-"], 2, "unknown option -"),
        (["-m", "no_module"], 1, "no module named 'no_module'"),
        (["-m", "no_module.inside"], 1, "no module named 'no_module.inside'"),
        (["-c"], 2, "usage: "),
    ],
)
def test_what_is_no_program_is_told_in_a_line(arguments, code, said):
    told = python("-m", "hcq.cudacpu", *arguments, code=code)
    assert said in told and "Traceback" not in told


def test_python_processes_that_a_program_starts_have_the_driver_too():
    child = USES + "use()\nprint('child')"
    start = f"import subprocess, sys\nprint(subprocess.check_output([sys.executable, '-c', {child!r}], text=True))"
    assert "child" in python("-m", "hcq.cudacpu", "-c", start)
    worker = USES + "import multiprocessing\nuse()\n"
    worker += "with multiprocessing.get_context('spawn').Pool(1) as pool: print(pool.apply(eval, ['6 * 7']))"
    assert "42" in python("-m", "hcq.cudacpu", "-c", worker)


def test_a_forked_child_has_no_driver_and_says_so():
    text = """
import os
use()
if os.fork() == 0:
    os._exit(driver.cuda.raw.cuCtxSynchronize() == 3)  # CUDA_ERROR_NOT_INITIALIZED
assert os.waitstatus_to_exitcode(os.wait()[1]) == 1
use()
"""
    python("-m", "hcq.cudacpu", "-c", USES + text)


def test_installing_twice_is_installing_once():
    text = "import hcq.cudacpu as c\nassert not c.installed()\nc.install(); c.install()\nassert c.installed()\n"
    python("-c", text + USES + "use()")


def test_another_driver_that_is_loaded_already_is_not_replaced(tmp_path):
    other = tmp_path / "libcuda.so.1"
    text = f"""
import ctypes, shutil
import hcq.cudacpu as c
shutil.copy(c.library_path(), {str(other)!r})
ctypes.CDLL({str(other)!r})
try:
    c.install()
except Exception as error:
    print(type(error).__name__, error)
"""
    said = python("-c", text)
    assert said.startswith("DeviceUnavailable another CUDA driver is loaded already") and str(other) in said


FAULTS = """
def fault():
    made = driver.kernel(IOTA)
    for _ in range(3):
        driver.launch(made, 1, 1, __import__("ctypes").c_uint64(64), 0)
        assert driver.refused(driver.cuda.cuCtxSynchronize).name == "CUDA_ERROR_ILLEGAL_ADDRESS"
        driver.fresh()
        made = driver.kernel(IOTA)
"""


def test_faults_of_others_end_the_process_as_without_the_driver():
    text = USES + "use()\n" + FAULTS + "fault()\nprint('still here', flush=True)\nctypes.string_at(8)"
    for options in ([], ["-X", "faulthandler"]):
        said = python(*options, "-m", "hcq.cudacpu", "-c", text, code=-11)
        assert "still here" in said
        assert ("Fatal Python error: Segmentation fault" in said) == bool(options)


def test_kernels_fault_safely_beside_handlers_that_came_later():
    later = "import faulthandler\nfaulthandler.enable()\n"
    # hcq's own handler, which the first program of a CPU device brings.
    later += "import hcq\nprg = hcq.Device['LLVM'].program('f', 'define void @f(ptr %a) { ret void }')\n"
    later += "prg(hcq.empty(4, 'uint8', device='LLVM'))\nhcq.Device['LLVM'].synchronize()\n"
    text = USES + "use()\n" + FAULTS + "fault()\n" + later + "fault()\nuse()\nprint('all went well')"
    assert "all went well" in python("-m", "hcq.cudacpu", "-c", text)


@pytest.mark.parametrize("call", ["cuModuleUnload(module)", "cuModuleLoadData(ctypes.byref(module), text)"])
def test_a_thread_that_python_ends_in_the_compiler_does_not_abort_the_process(call):
    """Python ends threads that come for the interpreter's lock too late by pthread_exit: here it is the compiler."""
    text = f"""
import ctypes, os, threading, time
from launch_checks import HEAD, IOTA, load
driver.fresh()
module, text = load(HEAD + IOTA), (HEAD + IOTA).encode()
end = ctypes.CDLL(None).pthread_exit
driver.cuda.raw.hcq_cuda_install(end, end, end)
thread = threading.Thread(target=lambda: driver.cuda.raw.{call}, daemon=True)
thread.start()
thread.join(0.2)
os._exit(7)
"""
    python("-m", "hcq.cudacpu", "-c", USES + text, code=7)
