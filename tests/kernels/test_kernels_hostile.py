"""Kernels nobody should write, and launches nobody should make: each works, or is refused with what is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from test_kernels_errors import load

import hcq

DEVICES = ("PYTHON", "LLVM", "CLANG")
AWKWARD = ("_0", "__", "_9a", "int", "NULL", "INFINITY", "NAN", "EOF", "INT_MAX", "M_PI", "errno", "unix", "linux")
AWKWARD += ("entry", "hcq_group_id", "global_id_0", "v_1", "v1", "v2", "ret", "define", "größe", "日本", "i32", "bool")
AWKWARD += ("HCQ_KERNEL", "UINT64_MAX", "HUGE_VAL", "__x86_64__", "memcpy", "size_t", "NDEBUG", "I")


@pytest.fixture(params=DEVICES)
def device(request):
    pytest.importorskip("llvmlite", reason="the LLVM device needs llvmlite") if request.param == "LLVM" else None
    return request.param


@pytest.fixture
def module(tmp_path):
    """Loads the text of a module with kernels."""

    def made(text):
        return load(tmp_path / "hostile.py", f"import hcq\nimport numpy as np\n{text}", "hostile")

    return made


HEAD = "@hcq.kernel\ndef f(x: hcq.ptr[hcq.i32]):\n"


def test_parameters_and_variables_may_be_called_anything_python_allows(device, module):
    names = AWKWARD
    parameters = ", ".join(f"{name}: hcq.i64" for name in names)
    body = "\n".join(f"    {name} = {name} + {at}" for at, name in enumerate(names))
    m = module(f"@hcq.kernel\ndef f(x: hcq.ptr[hcq.i64], {parameters}):\n{body}\n    x[0] = {' + '.join(names)}\n")
    x = np.zeros(1, np.int64)
    m.f[1, 1](x, *range(len(names)), device=device)
    assert x[0] == 2 * sum(range(len(names)))


@pytest.mark.parametrize("name", AWKWARD)
def test_pointers_may_be_called_anything_python_allows(name, device, module):
    m = module(f"@hcq.kernel\ndef f({name}: hcq.ptr[hcq.i32]):\n    {name}[hcq.global_id(0)] = 3\n")
    x = np.zeros(4, np.int32)
    m.f[2, 2](x, device=device)
    assert x.tolist() == [3, 3, 3, 3]


def test_kernels_that_ask_for_no_id_run_in_every_work_item(device, module):
    m = module("@hcq.kernel\ndef f():\n    pass\n\n" + HEAD.replace("f(", "g(") + "    hcq.atomic_add(x, 0, 1)\n")
    m.f[3, (2, 2)](device=device)
    x = np.zeros(1, np.int32)
    m.g[3, (2, 2)](x, device=device)
    assert x[0] == 12


def test_items_may_shift_by_more_than_the_width(device, module):
    body = "    i = hcq.global_id(0)\n    j = hcq.i32((hcq.i8(i) << hcq.i8(-1)) & 3) + i\n"
    m = module(
        HEAD
        + body
        + "    x[j] = 1 + (hcq.i32(i) >> hcq.i32(-1))\n"
        + "    x[i + 4] = hcq.i32(hcq.u8(i) << hcq.u8(200))\n"
    )
    x = np.full(8, 9, np.int32)
    m.f[1, 4](x, device=device)
    assert x.tolist() == [1, 1, 1, 1, 0, 0, 0, 0]


BOTH = """@hcq.kernel
def f(y: hcq.ptr[hcq.i32], x: hcq.ptr[hcq.i32]):
    i = hcq.global_id(0)
    y[i] = x[i] + 1
"""


def test_one_array_may_be_passed_twice(device, module):
    a = np.arange(4, dtype=np.int32)
    module(BOTH).f[1, 4](a, a, device=device)
    assert a.tolist() == [1, 2, 3, 4]


def test_arrays_in_another_byte_order_are_refused(device, module):
    m, a = module(BOTH), np.arange(4, dtype=np.int32)
    for wrong in (a.astype(">i4"), np.zeros(4, ">i4")):
        with pytest.raises(hcq.errors.LaunchError, match="big-endian"):
            m.f[1, 4](a, wrong, device=device)


def nested(count):
    return (
        HEAD + "".join("    " + " " * i + f"if x[0] >= {i}:\n" for i in range(count)) + " " * (count + 4) + "x[1] = 1\n"
    )


CHAIN = HEAD + "    if x[0] == -1:\n        x[1] = -1\n"
TOO_DEEP = {
    "ifs": nested(90),
    "elifs": CHAIN + "".join(f"    elif x[0] == {i}:\n        x[1] = {i}\n" for i in range(1000)),
    "operators": HEAD + f"    x[1] = {'-' * 700}x[0]\n",
    "loops": HEAD + "".join("    " + " " * i + f"for i{i} in range(1):\n" for i in range(19)) + " " * 23 + "x[1] = 1\n",
}


@pytest.mark.parametrize("which", TOO_DEEP)
def test_what_is_nested_too_deep_is_refused_in_every_language_alike(which, device, module):
    m = module(TOO_DEEP[which])
    x = np.zeros(2, np.int32)
    with pytest.raises(hcq.CompileError, match=r"nested (deeper than|too deep to be read)"):
        m.f[1, 1](x, device=device)


@pytest.mark.parametrize("constant", ["9 ** 9 ** 9", "1 << 10 ** 15", "(-2) ** 10 ** 12"])
def test_constants_that_would_take_all_memory_are_refused(constant, module):
    with pytest.raises(hcq.CompileError, match="more than 64 bits"):
        module(HEAD + f"    x[0] = {constant}\n").f.ir()


@pytest.mark.parametrize(
    ("constant", "value"), [("1 ** 10 ** 12", 1), ("(-1) ** (10 ** 12 + 1)", -1), ("0 << 10 ** 9", 0)]
)
def test_constants_that_stay_small_are_computed(constant, value, module):
    x = np.zeros(1, np.int32)
    module(HEAD + f"    x[0] = {constant}\n").f[1, 1](x, device="PYTHON")
    assert x[0] == value


def test_what_is_long_but_not_deep_runs(device, module):
    m = module(HEAD + f"    if {' and '.join(['x[0] == 0'] * 100)}:\n        x[1] = {'-' * 100}7\n")
    x = np.zeros(2, np.int32)
    m.f[1, 1](x, device=device)
    assert x[1] == 7


def test_blocks_forty_deep_run(device, module):
    m = module(nested(40))
    x = np.array([100, 0], np.int32)
    m.f[1, 1](x, device=device)
    assert x[1] == 1


def test_arrays_that_overlap_are_read_as_they_are_and_not_written_as_copies(module):
    m = module(
        "@hcq.kernel\ndef g(y: hcq.ptr[hcq.i32], a: hcq.ptr[hcq.i32], b: hcq.ptr[hcq.i32]):\n"
        "    i = hcq.global_id(0)\n    y[i] = b[i] - a[i]\n\n\n" + BOTH
    )
    x, y = np.arange(5, dtype=np.int32) ** 2, np.zeros(4, np.int32)
    m.g[1, 4](y, x[:-1], x[1:], device="PYTHON")
    assert y.tolist() == [1, 3, 5, 7]
    with pytest.raises(hcq.errors.LaunchError, match="arrays 0 and 1 overlap"):
        m.f[1, 4](x[1:], x[:-1], device="PYTHON")


# Launches


@hcq.kernel
def add(x: hcq.ptr[hcq.i32], v: hcq.i8 = 1, b: hcq.bool_ = False, f: hcq.f16 = 0.0):
    i = hcq.global_id(0)
    x[i] = x[i] + v + hcq.i32(b)


@hcq.kernel
def nothing():
    pass


class Index:
    def __index__(self):
        return 3


class Count(int):
    """A subclass."""


WRONG = {
    "sizes are not negative": lambda x, d: add[-1, 4](x, device=d),
    "less than 2\\^31": lambda x, d: add[2**40, 1](x, device=d),
    "an empty group": lambda x, d: add[1, 0](x, device=d),
    "takes at most": lambda x, d: add[1, 10**6](x, device=d),
    "2147483648 work-items": lambda x, d: add[2**21, 1024](x, device=d),
    "limit is 2\\^48": lambda x, d: nothing[(2**20, 2**20, 2**20), 1](device=d),
    "not 1.0": lambda x, d: add[1.0, 4](x, device=d),
    "and nan \\(float\\) is given": lambda x, d: add[1, 4](x, float("nan"), device=d),
    "and 1.0 \\(float\\) is given": lambda x, d: add[1, 4](x, 1.0, device=d),
    "not 128": lambda x, d: add[1, 4](x, 128, device=d),
    "holds 0 to 1": lambda x, d: add[1, 4](x, 1, 2, device=d),
    "too large": lambda x, d: add[1, 4](x, 1, True, 1e9, device=d),
    "ndarray\\) is given": lambda x, d: add[1, 4](x, x, device=d),
    "given twice": lambda x, d: add[1, 4](x, x=x, device=d),
    "no parameter q": lambda x, d: add[1, 4](x, q=1, device=d),
    "needs a value for x": lambda x, d: add[1, 4](device=d),
    "takes 4 arguments": lambda x, d: add[1, 4](x, 1, True, 1.0, 9, device=d),
    "with elements": lambda x, d: add[1, 4](np.zeros(0, np.int32), device=d),
    "not \\[1, 2\\]": lambda x, d: add[1, 4]([1, 2], device=d),
    "read-only": lambda x, d: add[1, 4](np.frombuffer(bytes(16), np.int32), device=d),
    "ascontiguousarray": lambda x, d: add[1, 4](np.zeros(8, np.int32)[::2], device=d),
    "not allocated": lambda x, d: add[1, 4](hcq.Buffer(d, 4, hcq.i32)),
    "stream": lambda x, d: add[1, 4](hcq.zeros(4, hcq.i32, d), stream=hcq.Device["CLANG:1"].stream()),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_launches_are_refused_before_anything_runs(message, device):
    x = np.arange(4, dtype=np.int32)
    with pytest.raises(hcq.errors.LaunchError, match=message):
        WRONG[message](x, device)
    add[np.uint8(1), Count(4)](x, Index(), np.bool_(True), device=device)
    assert x.tolist() == [4, 5, 6, 7]


def test_no_groups_are_no_work(device):
    x = np.arange(4, dtype=np.int32)
    add[0, 4](x, device=device)
    assert x.tolist() == [0, 1, 2, 3]


def test_views_at_odd_bytes_are_written_in_place(device):
    whole = hcq.zeros(17, hcq.u8, device)
    add[1, 4](whole.view(4, hcq.i32, 1), 7)
    assert whole.numpy().tolist() == [0] + [7, 0, 0, 0] * 4


def test_threads_may_launch_a_kernel_for_the_first_time_together(device, module):
    m = module("@hcq.kernel\ndef f(x: hcq.ptr, c: hcq.constexpr):\n    i = hcq.global_id(0)\n    x[i] = x[i] + c\n")
    buffers = [hcq.zeros(4, hcq.i32, device) for _ in range(8)]
    start = threading.Barrier(len(buffers))

    def work(buffer):
        start.wait()
        for c in range(3):
            m.f[1, 4](buffer, c)
        return buffer.numpy().tolist()

    with ThreadPoolExecutor(len(buffers)) as pool:
        assert list(pool.map(work, buffers)) == [[3] * 4] * len(buffers)


def test_a_process_may_end_with_launches_queued(device, tmp_path):
    text = "import hcq\n@hcq.kernel\ndef f(x: hcq.ptr[hcq.i32]):\n    i = hcq.global_id(0)\n    v = x[i]\n"
    text += "    for k in range(100):\n        v = v * 3 + k\n    x[i] = v\n"
    text += f"x = hcq.zeros(64, hcq.i32, {device!r})\nfor _ in range(20):\n    f[1, 64](x)\n"
    (tmp_path / "ends.py").write_text(text)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))}
    done = subprocess.run([sys.executable, tmp_path / "ends.py"], env=environment, capture_output=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("items", [1, 5])
def test_the_bit_of_a_comparison_may_be_read_as_an_f16(items, device, module):
    text = "@hcq.kernel\ndef f(x: hcq.ptr[hcq.f64]):\n    i = hcq.global_id(0)\n    c = hcq.bool_(hcq.f16(i))\n"
    text += "    for k in range(8):\n        if k == 3:\n            x[i] = hcq.f64(hcq.bitcast(hcq.u16(c), hcq.f16))\n"
    x = np.ones(items)
    module(text).f[1, items](x, device=device)
    assert x.tolist() == [0, *[2.0**-24] * 4][:items]
