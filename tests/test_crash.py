"""A kernel that crashes ends the process as it would have ended, after one line that names kernel, device, group and
command, and the user's line where it is known."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest
from cpu_code import use_compiler

SOURCE = """
#include <hcq.h>
#include <signal.h>
#include <stdlib.h>
void write_nowhere(int *p) { *(volatile int *)16 = 1; }
void divide(int *p, int zero) { *p = 7 / zero; }
void illegal(int *p) { __builtin_trap(); }
void send(int *p) { raise(SIGSEGV); }
HCQ_KERNEL void in_group(int *p) { if (hcq_group_id(0) == 1 && hcq_group_id(2) == 2) *(volatile int *)16 = 1; }
static __attribute__((noinline)) int deep(volatile char *below, int n) {
  volatile char here[1000];
  here[n % 1000] = below[0];
  return n ? here[n % 1000] + deep(here, n - 1) : 0;
}
HCQ_KERNEL void too_deep(int *p) { volatile char c[1] = {1}; *p = deep(c, 1 << 20); }
HCQ_KERNEL void well(int *p) { *p = 1; }
"""

SCRIPT = """
import struct, sys, threading
{before}
from hcq import _native
import numpy as np
library = open(sys.argv[1], "rb").read()
memory = np.zeros(4, "i4")
kernargs = struct.pack("<Qi", memory.ctypes.data, 0)
for name in ("well", sys.argv[2]):
    run = lambda: _native._Function(library, name).run(kernargs, [2, 3, 4], [3, 1, 1], device="CLANG:1")
    if {threaded}:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    else:
        run()
{after}
print("survived")
"""


@pytest.fixture(params=["clang", "gcc"], scope="module")
def libraries(request, tmp_path_factory):
    """Paths of the library without barriers and of the same with."""
    with pytest.MonkeyPatch.context() as patch:
        compiler = use_compiler(request.param, patch)
        folder = tmp_path_factory.mktemp("crash")
        items, fibers = folder / "items.lib", folder / "fibers.lib"
        items.write_bytes(compiler.compile(SOURCE))
        fibers.write_bytes(compiler.compile(SOURCE.replace("*p = 1;", "hcq_barrier(); *p = 1;")))
    return items, fibers


def crash(library, name, before="", after="", threaded=False):
    script = SCRIPT.format(before=before, after=after, threaded=threaded)
    command = [sys.executable, "-c", script, str(library), name]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.parametrize(
    ("name", "number", "line"),
    [
        ("write_nowhere", signal.SIGSEGV, "segmentation fault at address 0x10 in kernel 'write_nowhere' on CLANG:1"),
        ("divide", signal.SIGFPE, "arithmetic fault in kernel 'divide' on CLANG:1"),
        ("illegal", signal.SIGILL, "illegal instruction in kernel 'illegal' on CLANG:1"),
        (
            "in_group",
            signal.SIGSEGV,
            "segmentation fault at address 0x10 in kernel 'in_group' on CLANG:1, group (1, 0, 2) of (2, 3, 4)",
        ),
        ("too_deep", signal.SIGSEGV, "stack overflow in kernel 'too_deep' on CLANG:1, group (0, 0, 0) of (2, 3, 4)"),
    ],
)
def test_a_crash_names_kernel_device_and_group(libraries, name, number, line, threaded):
    for library in libraries:
        done = crash(library, name, threaded=threaded)
        assert done.returncode == -number
        assert done.stderr == f"hcq: {line}\n"
        assert done.stdout == ""


@pytest.mark.parametrize("way", ["overlapping", "small", "large"])
def test_a_crash_in_a_queued_copy_names_copy_and_device(way):
    script = f"""
import hcq
dev, a = hcq.Device["CLANG"], hcq.empty(1 << 25, hcq.dtypes.uint8, "CLANG")
a.fill(1)
source, dest, size = {{"overlapping": (16, 4096, 8192), "small": (16, a._buf.va_addr, 8),
                      "large": (1 << 20, a._buf.va_addr, 1 << 25)}}["{way}"]
dev.hw_copy_queue_t().copy(dest, source, size).submit(dev)
dev.synchronize()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGSEGV
    line = r"hcq: segmentation fault( at address 0x[0-9a-f]+)? in a copy on CLANG; command #\d+ of CLANG copy queue"
    line += r"(, <string>:\d+)?\n"  # under the checks
    assert re.fullmatch(line, done.stderr)


LAUNCHES = """
import hcq
dev = hcq.Device["CLANG"]
nowhere = dev.program("nowhere", "void nowhere(int *p) {{ *(volatile int *)16 = *p; }}")
fine = dev.program("fine", "void fine(int *p) {{ *p = 1; }}")
a = hcq.zeros(4, hcq.dtypes.int32, "CLANG")
with {block}:
    fine(a)
    nowhere(a)
    {end}
"""


@pytest.mark.parametrize("block", ["hcq.profile()", "hcq.checks()"])
@pytest.mark.parametrize("end", ["dev.synchronize()", "import time; time.sleep(30)"])
def test_a_crash_of_a_launch_names_queue_and_command_and_the_line_where_that_is_known(block, end):
    script = LAUNCHES.format(block=block, end=end)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGSEGV
    told = "in kernel 'nowhere' on CLANG; command #2 of CLANG compute queue, <string>:9\n"
    assert done.stderr == f"hcq: segmentation fault at address 0x10 {told}"


def test_a_crash_in_a_graph_names_the_line_that_recorded_it():
    script = LAUNCHES.format(block="hcq.capture() as g", end="pass") + "g.replay()\ndev.synchronize()\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGSEGV
    assert re.search(r"in kernel 'nowhere' on CLANG; command #\d+ of CLANG compute queue, <string>:9\n", done.stderr)


@pytest.mark.unchecked("somebody looks then")
def test_a_crash_of_a_launch_that_nobody_looks_at_names_queue_and_command():
    script = LAUNCHES.format(block="__import__('contextlib').nullcontext()", end="dev.synchronize()")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stderr.endswith("in kernel 'nowhere' on CLANG; command #2 of CLANG compute queue\n")


def test_a_signal_that_was_sent_ends_the_process_too(libraries):
    done = crash(libraries[0], "send")
    assert done.returncode == -signal.SIGSEGV
    assert "in kernel 'send'" in done.stderr


@pytest.mark.parametrize("order", ["before", "after"])
def test_handlers_of_others_still_run(libraries, order):
    # Enabled before the first program is loaded, or after.
    enable = "import faulthandler; faulthandler.enable()"
    if order == "before":
        done = crash(libraries[0], "write_nowhere", before=enable)
    else:
        later = "import hcq._native as n; n._Function(open(sys.argv[1], 'rb').read(), 'well'); " + enable
        done = crash(libraries[0], "write_nowhere", before=later)
    assert done.returncode == -signal.SIGSEGV
    # Where the other handler sends the signal on, the address is gone.
    assert re.search(r"hcq: segmentation fault( at address 0x10)? in kernel 'write_nowhere' on CLANG:1\n", done.stderr)
    assert "Fatal Python error: Segmentation fault" in done.stderr


def test_crashes_outside_of_kernels_are_not_ours(libraries):
    done = crash(libraries[0], "well", after="import ctypes; ctypes.string_at(16)")
    assert done.returncode == -signal.SIGSEGV
    assert done.stderr == ""


def test_a_handler_that_recovers_goes_on_working(libraries):
    # Another library of the process may handle faults of its own, again and again.
    source = """
        #include <setjmp.h>
        #include <signal.h>
        static sigjmp_buf back;
        static void recover(int s) { siglongjmp(back, 1); }
        void install(void) { signal(SIGSEGV, recover); }
        int probe(void) { if (sigsetjmp(back, 1)) return 1; *(volatile int *)16 = 1; return 0; }"""
    folder = libraries[0].parent
    (folder / "probe.c").write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "probe.so", folder / "probe.c"], check=True)
    load = f"import ctypes; probe = ctypes.CDLL({str(folder / 'probe.so')!r}); probe.install()"
    done = crash(libraries[0], "well", before=load, after="assert [probe.probe() for _ in range(3)] == [1, 1, 1]")
    assert (done.returncode, done.stdout) == (0, "survived\n")


def test_threads_leave_no_signal_stacks_behind(libraries):
    after = """
def maps():
    return len(open("/proc/self/maps").readlines())
def spawn():
    threads = [threading.Thread(target=run) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
spawn()
first = maps()
for _ in range(50):
    spawn()
assert maps() - first < 20, maps() - first
"""
    done = crash(libraries[0], "well", after=after)
    assert (done.returncode, done.stdout, done.stderr) == (0, "survived\n", "")


DEVICE = """
import sys
import hcq
dev = hcq.Device[sys.argv[2]]
prg = dev.runtime("in_group", open(sys.argv[1], "rb").read())
buf = hcq.empty(4, hcq.dtypes.int32, sys.argv[2])
prg(buf._buf, global_size=(2, 3, 4), local_size=(3, 1, 1))
dev.synchronize()
"""


@pytest.mark.parametrize("device", ["CLANG", "CLANG:1"])
def test_a_crash_in_a_queued_launch_names_its_device(libraries, device):
    for library in libraries:
        command = [sys.executable, "-c", DEVICE, str(library), device]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == -signal.SIGSEGV
        # Groups run side by side: whichever crashes first is named, and no other.
        expected = (
            rf"hcq: segmentation fault at address 0x10 in kernel 'in_group' on {device}, group \(1, [012], 2\) of .*"
        )
        assert re.fullmatch(expected + "\n", done.stderr)


def test_a_crash_in_a_copy_is_named() -> None:
    code = """
import hcq
dev = hcq.Device["CLANG"]
buf = hcq.empty(64, hcq.dtypes.uint8, "CLANG")
dev.hw_copy_queue_t().copy(buf._buf.va_addr, 4096, 64).submit(dev)
dev.synchronize()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGSEGV
    assert "in a copy on CLANG" in done.stderr
