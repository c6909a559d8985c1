"""What modules, functions and launches promise. Run by test_launch.py."""

from __future__ import annotations

import ctypes
import struct
import threading

import numpy as np
from driver import HEAD, cuda, function, kernel, launch, load, out, refused, run

# out[global index] = a + index of the thread, or where the launch's shape is told.
IOTA = """
.visible .entry k(.param .u64 to, .param .u32 add) {
  .reg .b32 %r<9>; .reg .b64 %d<4>;
  ld.param.u64 %d1, [to];
  ld.param.u32 %r1, [add];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  add.s32 %r6, %r5, %r1;
  mul.wide.u32 %d2, %r5, 4;
  add.s64 %d3, %d1, %d2;
  st.global.u32 [%d3], %r6;
  ret;
}
"""
VARIABLES = """
.visible .global .align 4 .u32 counter = 5;
.visible .const .align 8 .b8 table[24] = {1, 2, 3};
.visible .entry k(.param .u64 to) {
  .reg .b32 %r<3>; .reg .b64 %d<2>;
  ld.param.u64 %d1, [to];
  ld.global.u32 %r1, [counter];
  st.global.u32 [%d1], %r1;
  add.s32 %r2, %r1, 1;
  st.global.u32 [counter], %r2;
  ret;
}
"""


def check_every_thread_of_a_grid_runs_once():
    made = kernel(IOTA)
    for grid, block in ((1, 1), (1, 1024), (7, 33), (5000, 1), (300, 256)):
        result = np.zeros(grid * block, np.uint32)
        run(made, grid, block, result, 3)
        assert (result == np.arange(grid * block) + 3).all(), (grid, block)


def check_arguments_come_from_a_buffer_as_well():
    made, result = kernel(IOTA), np.zeros(32, np.uint32)
    packed = ctypes.create_string_buffer(16)
    ctypes.memmove(packed, np.array([result.ctypes.data], np.uint64).tobytes() + b"\x07\0\0\0", 12)
    size = ctypes.c_size_t(12)
    extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(packed), 2, ctypes.addressof(size), 0)
    cuda.cuLaunchKernel(made, 1, 1, 1, 32, 1, 1, 0, None, None, extra)
    cuda.cuCtxSynchronize()
    assert (result == np.arange(32) + 7).all()
    size.value = 8
    call = cuda.cuLaunchKernel
    assert refused(call, made, 1, 1, 1, 32, 1, 1, 0, None, None, extra).name == "CUDA_ERROR_INVALID_VALUE"


def check_shapes_outside_the_limits_are_refused():
    made, result = kernel(IOTA), np.zeros(4, np.uint32)
    for grid, block in (
        (0, 1),
        (1, 0),
        (1, 1025),
        ((1, 65536, 1), 1),
        ((1, 1, 65536), 1),
        (1, (1, 1, 65)),
        (1, (32, 33)),
    ):
        assert refused(launch, made, grid, block, result, 0).name == "CUDA_ERROR_INVALID_VALUE", (grid, block)
    assert refused(launch, made, 1, 1, result, 0, shared=48 * 1024 + 1).name == "CUDA_ERROR_INVALID_VALUE"
    cuda.cuFuncSetAttribute(made, 8, 64 * 1024)
    run(made, 1, 1, result, 0, shared=64 * 1024)
    assert refused(cuda.cuFuncSetAttribute, made, 8, 1 << 20).name == "CUDA_ERROR_INVALID_VALUE"
    assert refused(cuda.cuLaunchKernel, None, 1, 1, 1, 1, 1, 1, 0, None, None, None).name == "CUDA_ERROR_INVALID_HANDLE"
    cuda.cuCtxSynchronize()  # none of these is an error that stays


def check_a_kernel_s_own_limits_hold():
    made = kernel(".visible .entry k() .maxntid 64, 2, 1 { ret; }")
    run(made, 1, (64, 2))
    assert refused(launch, made, 1, 129).name == "CUDA_ERROR_INVALID_VALUE"
    assert out(ctypes.c_int, cuda.cuFuncGetAttribute, 0, made).value == 128
    made = kernel(".visible .entry k() .reqntid 8, 4, 1 { ret; }")
    run(made, 1, (8, 4))
    assert refused(launch, made, 1, 32).name == "CUDA_ERROR_INVALID_VALUE"


def check_shared_memory_is_declared_within_what_every_device_has():
    text = HEAD + ".shared .b8 s[{}]; .visible .entry k() {{ .reg .u32 %r; mov.u32 %r, s; ret; }}"
    load(text.format(48 * 1024))
    error = refused(load, text.format(48 * 1024 + 1))
    assert error.name == "CUDA_ERROR_INVALID_PTX"
    assert "PTX line 4: k has 49153 bytes of .shared memory, at most 49152 can be" in error.log
    run(kernel(IOTA), 1, 1, np.zeros(1, np.uint32), 0)  # it isn't an error that stays


def check_functions_tell_of_themselves():
    module = load(
        HEAD + IOTA + ".visible .entry other(.param .u8 a, .param .align 8 .b8 b[24], .param .f64 c) { ret; }"
    )
    made = function(module, "other")
    assert out(ctypes.c_char_p, cuda.cuFuncGetName, made).value == b"other"
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    found = []
    for index in range(3):
        cuda.cuFuncGetParamInfo(made, ctypes.c_size_t(index), ctypes.byref(offset), ctypes.byref(size))
        found.append((offset.value, size.value))
    assert found == [(0, 1), (8, 24), (32, 8)]
    call = cuda.cuFuncGetParamInfo
    past = refused(call, made, ctypes.c_size_t(3), ctypes.byref(offset), None)
    assert past.name == "CUDA_ERROR_INVALID_VALUE"
    assert out(ctypes.c_uint, cuda.cuModuleGetFunctionCount, module).value == 2
    assert refused(function, module, "absent").name == "CUDA_ERROR_NOT_FOUND"
    back = out(ctypes.c_void_p, cuda.cuFuncGetModule, made)
    assert back.value == module.value


def check_variables_are_each_module_s_own():
    first, second = load(HEAD + VARIABLES), load(HEAD + VARIABLES)
    result = np.zeros(1, np.uint32)
    for module, expected in ((first, 5), (first, 6), (second, 5)):
        run(function(module, "k"), 1, 1, result)
        assert result[0] == expected
    address, size = ctypes.c_uint64(), ctypes.c_size_t()
    cuda.cuModuleGetGlobal_v2(ctypes.byref(address), ctypes.byref(size), first, b"counter")
    assert size.value == 4 and ctypes.c_uint32.from_address(address.value).value == 7
    cuda.cuModuleGetGlobal_v2(ctypes.byref(address), ctypes.byref(size), first, b"table")
    assert size.value == 24 and ctypes.string_at(address.value, 4) == b"\1\2\3\0"
    kind = out(ctypes.c_uint, cuda.cuPointerGetAttribute, 2, ctypes.c_uint64(address.value))
    assert kind.value == 2  # device memory
    call = cuda.cuModuleGetGlobal_v2
    assert refused(call, ctypes.byref(address), None, first, b"absent").name == "CUDA_ERROR_NOT_FOUND"


def check_a_module_that_is_unloaded_is_no_handle_and_its_launches_end():
    module, result = load(HEAD + IOTA), np.zeros(1 << 16, np.uint32)
    made = function(module, "k")
    launch(made, 256, 256, result, 1)
    cuda.cuModuleUnload(module)
    assert refused(launch, made, 1, 1, result, 0).name == "CUDA_ERROR_INVALID_HANDLE"
    assert refused(cuda.cuModuleUnload, module).name == "CUDA_ERROR_INVALID_HANDLE"
    cuda.cuCtxSynchronize()
    assert (result == np.arange(1 << 16) + 1).all()


def check_ptx_that_is_wrong_is_refused_with_its_line():
    error = refused(load, HEAD + ".visible .entry k() {\n  .reg .b32 %r1; frobnicate.u32 %r1;\n  ret;\n}\n")
    assert error.name in ("CUDA_ERROR_INVALID_PTX", "CUDA_ERROR_NOT_SUPPORTED")
    assert "line 5" in error.log and "frobnicate" in error.log
    error = refused(load, HEAD.replace("sm_80", "sm_999") + ".visible .entry k() { ret; }")
    assert error.name == "CUDA_ERROR_NO_BINARY_FOR_GPU" and "sm_999" in error.log
    error = refused(load, HEAD.replace("8.0", "99.0") + ".visible .entry k() { ret; }")
    assert error.name == "CUDA_ERROR_UNSUPPORTED_PTX_VERSION" and "99.0" in error.log
    error = refused(load, "no PTX at all")
    assert error.name == "CUDA_ERROR_INVALID_PTX"
    # A log that is too small is cut off, and ends.
    error = refused(load, HEAD + ".visible .entry k() {\n  .reg .b32 %r1; frobnicate.u32 %r1;\n  ret;\n}\n", 8)
    assert len(error.log) == 7


def check_a_cubin_is_refused_by_name():
    cubin = bytearray(64)
    cubin[:5] = b"\x7fELF\x02"
    cubin[54:64] = np.array([56, 0, 64, 0, 0], np.uint16).tobytes()
    module = ctypes.c_void_p()
    error = refused(cuda.cuModuleLoadData, ctypes.byref(module), bytes(cubin))
    assert error.name == "CUDA_ERROR_NO_BINARY_FOR_GPU"
    cubin[32:64] = b"\xff" * 32  # one whose tables would lie beyond all memory
    for damaged in (bytes(cubin), b"\x7fELF"):
        error = refused(cuda.cuModuleLoadData, ctypes.byref(module), damaged)
        assert error.name == "CUDA_ERROR_NO_BINARY_FOR_GPU"
        error = refused(cuda.cuLibraryLoadData, ctypes.byref(module), damaged, None, None, 0, None, None, 0)
        assert error.name == "CUDA_ERROR_NO_BINARY_FOR_GPU"


def check_libraries_have_kernels_in_whatever_context():
    library = out(ctypes.c_void_p, cuda.cuLibraryLoadData, (HEAD + IOTA).encode(), None, None, 0, None, None, 0)
    of = out(ctypes.c_void_p, cuda.cuLibraryGetKernel, library, b"k")
    assert out(ctypes.c_uint, cuda.cuLibraryGetKernelCount, library).value == 1
    assert out(ctypes.c_char_p, cuda.cuKernelGetName, of).value == b"k"
    result = np.zeros(64, np.uint32)
    run(of, 2, 32, result, 0)  # a CUkernel stands for the function
    assert (result == np.arange(64)).all()
    in_context = out(ctypes.c_void_p, cuda.cuKernelGetFunction, of)
    run(in_context, 2, 32, result, 4)
    assert (result == np.arange(64) + 4).all()
    assert out(ctypes.c_int, cuda.cuKernelGetAttribute, 8, of, 0).value == 48 * 1024
    cuda.cuKernelSetAttribute(8, 65536, of, 0)
    run(of, 1, 1, result, 0, shared=65536)
    cuda.cuLibraryUnload(library)
    assert refused(launch, of, 1, 1, result, 0).name == "CUDA_ERROR_INVALID_HANDLE"


def check_a_library_keeps_to_its_own_module_after_a_reset():
    library = out(ctypes.c_void_p, cuda.cuLibraryLoadData, (HEAD + IOTA).encode(), None, None, 0, None, None, 0)
    of = out(ctypes.c_void_p, cuda.cuLibraryGetKernel, library, b"k")
    result = np.zeros(64, np.uint32)
    run(of, 2, 32, result, 1)
    others = []
    for _ in range(2):  # twice, since handles that ended are given again after some while
        cuda.cuDevicePrimaryCtxReset_v2(0)
        others = [load(HEAD + ".visible .entry other() { ret; }") for _ in range(70)]
    run(of, 2, 32, result, 4)
    assert (result == np.arange(64) + 4).all()
    cuda.cuDevicePrimaryCtxReset_v2(0)
    others = [load(HEAD + ".visible .entry other() { ret; }") for _ in range(70)]
    cuda.cuDevicePrimaryCtxReset_v2(0)
    others = [load(HEAD + ".visible .entry other() { ret; }") for _ in range(70)]
    cuda.cuLibraryUnload(library)
    for module in others:
        run(function(module, "other"), 1, 1)


def check_occupancy_follows_from_the_device_s_figures():
    made = kernel(IOTA)
    of = cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor
    per_multiprocessor = out(ctypes.c_int, cuda.cuDeviceGetAttribute, 39, 0).value
    assert out(ctypes.c_int, of, made, 256, ctypes.c_size_t(0)).value == per_multiprocessor // 256
    assert out(ctypes.c_int, of, made, 256, ctypes.c_size_t(40000)).value < per_multiprocessor // 256
    grid, block = ctypes.c_int(), ctypes.c_int()
    call = cuda.cuOccupancyMaxPotentialBlockSize
    call(ctypes.byref(grid), ctypes.byref(block), made, None, ctypes.c_size_t(0), 0)
    assert block.value % 32 == 0 and 32 <= block.value <= 1024 and grid.value >= 1


def check_fat_binaries_are_searched_for_ptx():
    text = (HEAD + IOTA).encode()
    text += bytes(-len(text) % 8)
    head = struct.pack("<HHIQIIHHIIIQQQ", 1, 0x101, 64, len(text), 0, 0, 0, 0, 80, 0, 0, 0x11, 0, 0)
    fat = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(head + text)) + head + text
    kept = ctypes.create_string_buffer(fat)
    wrapper = ctypes.create_string_buffer(struct.pack("<IIQQ", 0x466243B1, 1, ctypes.addressof(kept), 0))
    result = np.zeros(32, np.uint32)
    for n, image in enumerate((kept, wrapper)):
        module = out(ctypes.c_void_p, cuda.cuModuleLoadFatBinary, image)
        run(function(module, "k"), 1, 32, result, n)
        assert (result == np.arange(32) + n).all()


def check_several_texts_are_linked_to_one_module():
    caller = """
    .extern .func (.param .b32 r) twice (.param .b32 x);
    .visible .entry k(.param .u64 to) {
      .reg .b32 %r<4>; .reg .b64 %d<3>;
      ld.param.u64 %d1, [to];
      mov.u32 %r1, %tid.x;
      { .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), twice, (a); ld.param.b32 %r2, [b]; }
      mul.wide.u32 %d2, %r1, 4;
      add.s64 %d2, %d1, %d2;
      st.global.u32 [%d2], %r2;
      ret;
    }
    """
    callee = """
    .visible .func (.param .b32 r) twice (.param .b32 x) {
      .reg .b32 %r<3>; ld.param.b32 %r1, [x]; add.u32 %r2, %r1, %r1; st.param.b32 [r], %r2; ret;
    }
    """
    state = ctypes.c_void_p()
    cuda.cuLinkCreate_v2(0, None, None, ctypes.byref(state))
    for text in (HEAD + caller, HEAD + callee):
        data = text.encode() + b"\0"
        cuda.cuLinkAddData_v2(state, 1, data, ctypes.c_size_t(len(data)), b"name", 0, None, None)
    image, size = ctypes.c_void_p(), ctypes.c_size_t()
    cuda.cuLinkComplete(state, ctypes.byref(image), ctypes.byref(size))
    kept = ctypes.create_string_buffer(ctypes.string_at(image, size.value), size.value)
    cuda.cuLinkDestroy(state)
    result = np.zeros(32, np.uint32)
    run(function(out(ctypes.c_void_p, cuda.cuModuleLoadData, kept), "k"), 1, 32, result)
    assert (result == np.arange(32) * 2).all()
    cuda.cuLinkCreate_v2(0, None, None, ctypes.byref(state))
    call, data = cuda.cuLinkAddData_v2, bytes(64)
    cubin = refused(call, state, 0, data, ctypes.c_size_t(64), b"name", 0, None, None)
    assert cubin.name == "CUDA_ERROR_NO_BINARY_FOR_GPU"


def many(count: int, last: str = "") -> str:
    """A module of many kernels: each adds its number to a variable that all have, through a function that all call."""
    text = (
        HEAD
        + """
.visible .global .align 4 .u32 counter = 100;
.func (.param .u32 sum) plus(.param .u32 a, .param .u32 b) {
  .reg .b32 %r<4>;
  ld.param.u32 %r1, [a];
  ld.param.u32 %r2, [b];
  add.u32 %r3, %r1, %r2;
  st.param.u32 [sum], %r3;
  ret;
}
"""
    )
    for n in range(count):
        text += f""".visible .entry k{n}(.param .u64 to) {{
  .reg .b32 %r<9>; .reg .b64 %d<4>;
  .shared .align 4 .b8 own[256];
  .param .u32 a; .param .u32 b; .param .u32 sum;
  ld.param.u64 %d1, [to];
  mov.u32 %r1, %tid.x;
  shl.b32 %r2, %r1, 2;
  mov.u32 %r3, own;
  add.u32 %r4, %r3, %r2;
  ld.global.u32 %r5, [counter];
  st.param.u32 [a], %r5;
  st.param.u32 [b], {n};
  call (sum), plus, (a, b);
  ld.param.u32 %r6, [sum];
  st.shared.u32 [%r4], %r6;
  bar.sync 0;
  ld.shared.u32 %r7, [%r4];
  cvt.u64.u32 %d2, %r2;
  add.s64 %d3, %d1, %d2;
  st.global.u32 [%d3], %r7;
  {last if n == count - 1 else ""}
  ret;
}}
"""
    return text


def check_kernels_of_a_module_of_many_are_compiled_when_they_are_asked_for():
    module = load(many(12))
    assert out(ctypes.c_uint, cuda.cuModuleGetFunctionCount, module).value == 12
    result = np.zeros(32, np.uint32)
    address = out(ctypes.c_uint64, lambda at: cuda.cuModuleGetGlobal_v2(at, None, module, b"counter"))
    for n, number in ((11, 100), (3, 7), (11, 1000), (0, 5)):
        cuda.cuMemcpyHtoD_v2(address, np.array([number], np.uint32).ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(4))
        run(function(module, f"k{n}"), 1, 32, result)
        assert (result == number + n).all(), (n, number)
    assert refused(function, module, "k12").name == "CUDA_ERROR_NOT_FOUND"
    every = (ctypes.c_void_p * 12)()
    cuda.cuModuleEnumerateFunctions(every, 12, module)
    for n in (11, 9):
        run(ctypes.c_void_p(every[n]), 1, 32, result)
        assert (result == 5 + n).all()
    cuda.cuModuleUnload(module)
    library = out(ctypes.c_void_p, cuda.cuLibraryLoadData, many(12).encode(), None, None, 0, None, None, 0)
    for n in (10, 4):
        run(out(ctypes.c_void_p, cuda.cuLibraryGetKernel, library, f"k{n}".encode()), 1, 32, result)
        assert (result == 100 + n).all()
    cuda.cuLibraryUnload(library)


def check_what_is_wrong_in_a_kernel_of_many_is_told_when_the_module_is_loaded():
    text = many(12, "wgmma.fence.sync.aligned;")
    error = refused(load, text)
    line = 1 + text.split("\n").index("  wgmma.fence.sync.aligned;")
    assert error.name == "CUDA_ERROR_NOT_SUPPORTED" and f"line {line}" in error.log, error.log


def check_threads_may_ask_for_kernels_of_many_at_a_time():
    module, results = load(many(9)), np.zeros((8, 32), np.uint32)
    context = out(ctypes.c_void_p, cuda.cuCtxGetCurrent)
    failed = []

    def ask(row: int) -> None:
        try:
            cuda.cuCtxSetCurrent(context)
            for n in (row, 8, 8 - row):
                run(function(module, f"k{n}"), 1, 32, results[row])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=ask, args=(row,)) for row in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failed, failed
    assert (results == (108 - np.arange(8))[:, None]).all()
