"""What goes wrong with programs and memory on CUDA devices: each kind of error, with what to do about it."""

import os
import subprocess
import sys

import pytest

import hcq
from hcq.errors import InvalidProgram, LaunchError

PTX = """
.version {version}
.target {target}
.address_size 64
{variables}
.visible .entry f(.param .u64 .ptr .global out) {directives} {{ {body} ret; }}
"""


def text(version="7.0", target="sm_70", variables="", directives="", body=""):
    return PTX.format(version=version, target=target, variables=variables, directives=directives, body=body)


@pytest.fixture
def out(dev):
    return hcq.zeros(1, hcq.i32, "CUDA")


@pytest.mark.parametrize(
    "sizes", [{"local_size": (128, 1, 1)}, {"local_size": (2048, 1, 1)}, {"global_size": (1, 65536, 1)}]
)
def test_a_launch_that_is_too_large_is_refused_though_its_program_ends_with_it(dev, out, sizes):
    """The program goes while the error is on its way up: unloading it must not lose that."""
    before = dev.timeline_value
    with pytest.raises(LaunchError):
        dev.program("f", text(directives=".maxntid 64, 1, 1"))(out, **sizes)
    with pytest.raises(ZeroDivisionError):
        dev.program("f", text())(out, global_size=(1, 1, 1 // 0))
    assert dev.timeline_value == before


def test_groups_larger_than_the_kernel_is_compiled_for_are_refused(dev, out):
    bounded = dev.program("f", text(directives=".maxntid 64, 1, 1"))
    with pytest.raises(LaunchError, match=r"f: a group of \(128, 1, 1\); this kernel takes 64"):
        bounded(out, local_size=(128, 1, 1))
    bounded(out, local_size=(64, 1, 1), wait=True)


def test_ptx_for_a_later_device_says_which_this_is(dev):
    major, minor = dev.found.capability
    with pytest.raises(InvalidProgram, match=r"f: .*CUDA_ERROR_") as refused:
        dev.program("f", text("9.0", "sm_90" if major < 9 else "sm_121"))
    if dev.is_cpu_implementation:  # which of its errors a GPU's driver gives is its own
        assert f"compute capability {major}.{minor}" in str(refused.value)


def test_ptx_of_a_later_version_says_what_the_driver_knows(dev):
    said = rf"CUDA_ERROR_UNSUPPORTED_PTX_VERSION.*for CUDA {dev.info['version'].split()[1]}"
    with pytest.raises(InvalidProgram, match=rf"(?s)f: .*{said}.*update the driver"):
        dev.program("f", text("99.0"))


def test_a_kernel_that_declares_more_local_memory_than_there_is_is_refused_at_loading(dev):
    body = ".reg .b32 %r<2>; mov.u32 %r1, 1; st.shared.u32 [big+69996], %r1;"
    with pytest.raises(InvalidProgram, match=r"(?s)f: .*shared"):
        dev.program("f", text(variables=".shared .align 4 .b8 big[70000];", body=body))


def test_ptx_with_a_mistake_says_where(dev):
    with pytest.raises(InvalidProgram, match=r"(?s)does not load the library.*line 6"):
        dev.program("f", text(body="st.global.u32 [%rd9], 1;"))


SHORT = """
import hcq
dev = hcq.Device["CUDA"]
dev.limits
def said(error, work):
    try:
        work()
    except error as why:
        return why
    raise AssertionError(f"no {error}")

OutOfMemory = hcq.errors.OutOfMemory
why = said(OutOfMemory, lambda: hcq.empty(100 << 20, hcq.u8, "CUDA"))
assert (why.device, why.asked) == ("CUDA", 100 << 20) and isinstance(why, MemoryError)
both = hcq.BufferOptions(cpu_access=True)
said(OutOfMemory, lambda: hcq.Buffer("CUDA", 100 << 20, hcq.u8, options=both, preallocate=True))
held = [hcq.empty(20 << 20, hcq.u8, "CUDA") for _ in range(3)]
why = said(OutOfMemory, lambda: hcq.empty(20 << 20, hcq.u8, "CUDA"))
assert why.live == 60 << 20 and "largest" in str(why)
del held
whole = hcq.empty(40 << 20, hcq.u8, "CUDA")  # what was freed is there again, in one piece
whole.fill(3)
PTX = '''
.version 7.0
.target sm_70
.address_size 64
.global .align 4 .b8 big[200000000];
.visible .entry f() { ret; }
'''
why = said(OutOfMemory, lambda: dev.program("f", PTX))
assert why.device == "CUDA" and "f" in str(why)
assert whole.numpy()[-1] == 3 and dev.lost is None
print("done")
"""

MISALIGNED = """
import hcq
dev = hcq.Device["CUDA"]
PTX = '''
.version 7.0
.target sm_70
.address_size 64
.visible .entry f(.param .u64 .ptr .global out)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, 7;
  st.global.u32 [%rd1+2], %r1;
  ret;
}
'''
f, out = dev.program("f", PTX), hcq.zeros(2, hcq.i32, "CUDA")
try:
    f(out, wait=True)
    dev.synchronize()
except hcq.errors.DeviceLost as why:
    print(why.command, "CUDA_ERROR_MISALIGNED_ADDRESS" in str(why))
dev.close()
hcq.zeros(2, hcq.i32, "CUDA").numpy()
print("done")
"""


def run(code, **environment):
    variables = {**os.environ, "HCQ_CUDA": "cpu", **environment}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_device_that_is_full_says_so_and_goes_on():
    assert run(SHORT, HCQ_CUDACPU_MEMORY="64M", HCQ_CUDACPU_WITHOUT="") == ["done"]  # its memory for both is managed


@pytest.mark.thorough  # a process of its own
def test_a_misaligned_access_loses_the_device_with_the_kernels_name():
    assert run(MISALIGNED, HCQ_CUDACPU_CHECK="1") == ["f True", "done"]


def test_a_driver_that_is_older_than_nvrtc_is_given_machine_code(dev, nvrtc):
    from hcq.drivers.cuda import device
    from hcq.drivers.cuda import nvrtc as compiler
    from hcq.drivers.cuda.compiler import CUDACompiler, read_library

    major, minor = compiler.version()
    assert not device._needs_cubin(major * 1000 + minor * 10)
    assert device._needs_cubin(major * 1000 + minor * 10 - 10)
    source = 'extern "C" __global__ void f(int *out, float v) { out[0] = v; }'
    library = read_library(CUDACompiler((8, 0), as_cubin=True, cachekey=None).compile(source))
    assert library.image.startswith(b"\x7fELF") and library.kernels["f"].arguments == ["ptr", "f32"]
    with pytest.raises(hcq.CompileError, match=r"compiles for compute capability .* and later.* 3\.0"):
        CUDACompiler((3, 0), cachekey=None).compile(source)
