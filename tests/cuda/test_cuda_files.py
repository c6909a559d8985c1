"""Files read to CUDA's memory by cuFile: a library of a few lines in its place, which reads to hcq.cudacpu's memory."""

import os
import shutil
import subprocess
import sys

import pytest

from hcq.drivers.cuda import files

LIBRARY = r"""
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef struct { int error, cuda; } Status;
typedef struct { int type; union { int fd; void *handle; }; const void *operations; } Description;
static int said(const char *name) { const char *v = getenv(name); return v ? atoi(v) : 0; }
static void tell(const char *what, long a, long b) {
  FILE *f = fopen(getenv("FAKE_LOG"), "a");
  fprintf(f, "%s %ld %ld\n", what, a, b);
  fclose(f);
}
Status cuFileDriverOpen(void) { return (Status){said("FAKE_OPEN"), 0}; }
Status cuFileDriverGetProperties(unsigned *p) { memset(p, 0, 56); p[0] = 2; p[6] = 1 << 4; return (Status){0, 0}; }
Status cuFileHandleRegister(void **out, Description *d) {
  tell("register", d->type, (fcntl(d->fd, F_GETFL) & O_DIRECT) != 0);
  *out = (void *)(long)(d->fd + 1000);
  return (Status){said("FAKE_REGISTER"), 0};
}
void cuFileHandleDeregister(void *h) { tell("deregister", 0, 0); }
ssize_t cuFileRead(void *h, void *base, size_t size, off_t offset, off_t at) {
  static int calls;
  tell("read", (long)size, (long)offset);
  if (said("FAKE_READ") && ++calls == said("FAKE_CALL")) return said("FAKE_READ");
  if (size > 1 << 20) size = 1 << 20;  /* a short read is continued */
  char name[64];
  snprintf(name, sizeof name, "/proc/self/fd/%ld", (long)h - 1000);
  int plain = open(name, O_RDONLY);  /* direct I/O has alignments that are not what is looked at here */
  ssize_t got = pread(plain, (char *)base + at, size, offset);
  close(plain);
  return got;
}
"""
PROGRAM = """
import gc, os, sys
import numpy as np
import hcq

path, size = sys.argv[1], 3 << 20
data = np.arange(size + 700).astype("u1")
data[:: 4096] = 77
data.tofile(path)
disk = hcq.Buffer(f"DISK:{path}", size + 700, hcq.u8, preallocate=True)
dest = hcq.zeros(size, hcq.u8, "CUDA")
hcq.copy(dest, disk.view(size, hcq.u8, 100).ensure_allocated())
assert (dest.numpy() == data[100 : 100 + size]).all()
hcq.copy(dest.view(size - 64, hcq.u8, 64).ensure_allocated(), disk.view(size - 64, hcq.u8, 0).ensure_allocated())
assert (dest.numpy()[64:] == data[: size - 64]).all() and (dest.numpy()[:64] == data[100:164]).all()
small = hcq.zeros(4096, hcq.u8, "CUDA")
hcq.copy(small, disk.view(4096, hcq.u8, 4096).ensure_allocated())
assert small.numpy()[0] == 77
pinned = hcq.Buffer("CUDA", size, hcq.u8, options=hcq.BufferOptions(host=True), preallocate=True)
hcq.copy(pinned, disk.view(size, hcq.u8, 0).ensure_allocated())
assert (pinned.numpy() == data[:size]).all()
os.truncate(path, 1 << 20)
try:
    hcq.copy(dest, disk.view(size, hcq.u8, 0).ensure_allocated())
except EOFError as why:
    print(why)
del disk
gc.collect()
print("done")
"""


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.thorough)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("cufile")
    (folder / "cufile.c").write_text(LIBRARY)
    made = folder / "libcufile.so.0"
    subprocess.run([compiler, "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", made, folder / "cufile.c"], check=True)
    return folder


@pytest.fixture
def run(library, tmp_path):
    def run(**environment):
        log = tmp_path / "log"
        log.write_text("")
        variables = {**os.environ, "HCQ_CUDA": "cpu", "LD_LIBRARY_PATH": str(library), "FAKE_LOG": str(log)}
        variables |= {"HCQ_CUDA_FILE": "on", "HCQ_LOG": "info", **environment}
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / "data")]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0 and done.stdout.endswith("done\n"), done.stderr
        return log.read_text().splitlines(), done.stdout + done.stderr

    return run


def test_a_file_is_registered_once_and_read_straight_to_the_devices_memory(run):
    calls, said = run()
    size = 3 << 20
    reads = [tuple(map(int, call.split()[1:])) for call in calls if call.startswith("read")]
    assert calls[0] == "register 1 1" and calls.count("register 1 1") == 1 and calls[-1] == "deregister 0 0"
    assert reads[:3] == [(size - (at << 20), 100 + (at << 20)) for at in range(3)]
    assert reads[3] == (size - 64, 0) and len(reads) == 3 + 3 + 2, "of page-locked memory and small reads none"
    assert "ends after 1048576 bytes" in said and "page-locked" not in said


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        slow({"FAKE_READ": "-5011", "FAKE_CALL": "2"}, "from now on: cuFileRead gave 5011"),
        slow({"FAKE_REGISTER": "5008"}, "cuFileHandleRegister gave 5008 (not for this file)"),
        slow({"FAKE_OPEN": "5001"}, "cuFileDriverOpen gave 5001"),
        slow({"HCQ_CUDA_FILE": "auto"}, "hcq.cudacpu's memory is the host's"),
        slow({"HCQ_CUDA_FILE": "off"}, ""),
    ],
)
def test_what_cufile_cannot_do_goes_by_page_locked_memory_with_the_reason_in_the_log(run, environment, reason):
    calls, said = run(**environment)
    assert said.count("page-locked memory") == (1 if reason else 0) and reason in said
    assert len([call for call in calls if call.startswith("read")]) == (2 if "FAKE_READ" in environment else 0)


def test_it_is_chosen_where_it_goes_past_the_host(monkeypatch):
    assert files.past_the_host(2, 20, 1 << 4) == ""
    assert "nvidia-fs is not in use" in files.past_the_host(0, 0, 1 << 4)
    assert "no file system" in files.past_the_host(2, 20, 0)
    assert files.why_not("auto", on_cpu=True)
    if not os.path.exists("/sys/module/nvidia_fs"):
        monkeypatch.setattr(files._native, "cuda_load_cufile", None)  # a library that isn't to be loaded
        assert "nvidia-fs is not in use" in files.why_not("auto", on_cpu=False)
