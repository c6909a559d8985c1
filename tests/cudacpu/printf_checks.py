"""printf and assert of kernels. Run by test_printf.py. The arguments' buffers are made here and only passed on."""

from __future__ import annotations

import ctypes
import os
import struct
import tempfile

import numpy as np
from driver import cuda, kernel, launch, refused, run

PRINT = """
.extern .func (.param .b32 result) vprintf (.param .b64 format, .param .b64 arguments);
.visible .entry k(.param .u64 format, .param .u64 arguments, .param .u64 to) {
  .reg .b64 %d<4>; .reg .b32 %r<3>;
  ld.param.u64 %d1, [format];
  ld.param.u64 %d2, [arguments];
  ld.param.u64 %d3, [to];
  {
    .param .b64 param0; st.param.b64 [param0], %d1;
    .param .b64 param1; st.param.b64 [param1], %d2;
    .param .b32 retval0;
    call.uni (retval0), vprintf, (param0, param1);
    ld.param.b32 %r1, [retval0];
  }
  st.global.u32 [%d3], %r1;
  ret;
}
"""
ASSERT = """
.extern .func __assertfail (.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e) .noreturn;
.visible .entry k(.param .u64 message, .param .u64 file, .param .u64 function) {
  .reg .b64 %d<5>; .reg .b32 %r<3>; .reg .pred %p<2>;
  mov.u32 %r1, %tid.x;
  setp.ne.u32 %p1, %r1, 3;
  @%p1 ret;
  ld.param.u64 %d1, [message];
  ld.param.u64 %d2, [file];
  ld.param.u64 %d3, [function];
  mov.u32 %r2, 42;
  mov.u64 %d4, 1;
  {
    .param .b64 param0; st.param.b64 [param0], %d1;
    .param .b64 param1; st.param.b64 [param1], %d2;
    .param .b32 param2; st.param.b32 [param2], %r2;
    .param .b64 param3; st.param.b64 [param3], %d3;
    .param .b64 param4; st.param.b64 [param4], %d4;
    call.uni __assertfail, (param0, param1, param2, param3, param4);
  }
  ret;
}
"""


def captured(stream: int, call: object, *arguments: object) -> str:
    """What a call writes to a file descriptor."""
    with tempfile.TemporaryFile() as file:
        kept = os.dup(stream)
        os.dup2(file.fileno(), stream)
        try:
            call(*arguments)
        finally:
            os.dup2(kept, stream)
            os.close(kept)
        file.seek(0)
        return file.read().decode()


def printed(text: str, layout: str = "", *values: object) -> tuple[str, int]:
    """What a kernel prints, and what vprintf returned. `layout` is struct's, with C's alignment."""
    form = ctypes.create_string_buffer(text.encode())
    arguments = ctypes.create_string_buffer(struct.pack("@" + layout, *values) + bytes(8))
    result = np.zeros(1, np.int32)
    addresses = [ctypes.c_uint64(ctypes.addressof(each)) for each in (form, arguments)]
    made = kernel(PRINT)
    return captured(1, run, made, 1, 1, *addresses, result), int(result[0])


def check_conversions_are_those_of_c():
    assert printed("plain\n") == ("plain\n", 0)
    assert printed("%d %i %u\n", "iiI", -5, 7, 4000000000) == ("-5 7 4000000000\n", 3)
    assert printed("%ld %lld %lu\n", "qqQ", -1 << 40, 1 << 62, 1 << 63) == (f"{-1 << 40} {1 << 62} {1 << 63}\n", 3)
    assert printed("%x %X %#o %#x\n", "iiii", 255, 255, 8, 16) == ("ff FF 010 0x10\n", 4)
    assert printed("[%5d|%-5d|%05d|%+d|% d]", "iiiii", 42, 42, 42, 42, 42) == ("[   42|42   |00042|+42| 42]", 5)
    assert printed("%c%c", "ii", 104, 105) == ("hi", 2)
    assert printed("%.3f %e %g %10.2f|\n", "dddd", 3.14159, 1e10, 0.0001, 2.5) == (
        "3.142 1.000000e+10 0.0001       2.50|\n",
        4,
    )
    assert printed("%*d|%-*d|%.*f", "iiiiid", 4, 7, 4, 7, 2, 1.0) == ("   7|7   |1.00", 6)


def check_arguments_lie_where_c_aligns_them():
    assert printed("%d %f %d %lld %d", "idiqi", 1, 2.5, 3, 4, 5) == ("1 2.500000 3 4 5", 5)


def check_text_pointers_and_percent_signs():
    text = ctypes.create_string_buffer(b"text " * 100)
    assert printed("<%s>%%", "Q", ctypes.addressof(text)) == ("<" + "text " * 100 + ">%", 1)
    assert printed("%p", "Q", 0xABC0) == ("0xabc0", 1)


def check_what_is_no_conversion_is_printed_as_it_stands():
    assert printed("%y %", "i", 3)[0] == "%y %"


def check_a_kernel_that_fails_has_printed_what_came_before():
    made = kernel(PRINT)
    form = ctypes.create_string_buffer(b"before %s\n")
    arguments = ctypes.create_string_buffer(struct.pack("Q", 16))

    def both() -> None:
        launch(made, 1, 1, *[ctypes.c_uint64(ctypes.addressof(x)) for x in (form, arguments)], np.zeros(1, np.int32))
        assert refused(cuda.cuCtxSynchronize).name == "CUDA_ERROR_ILLEGAL_ADDRESS"

    assert captured(1, both) == "before "


def check_an_assertion_says_what_where_and_in_which_thread():
    made = kernel(ASSERT)
    texts = [ctypes.create_string_buffer(text) for text in (b"i < n", b"some.cu", b"void k()")]

    def both() -> None:
        launch(made, 2, 32, *[ctypes.c_uint64(ctypes.addressof(each)) for each in texts])
        assert refused(cuda.cuCtxSynchronize).name == "CUDA_ERROR_ASSERT"

    said = captured(2, both)
    assert "some.cu:42: void k(): block: [0,0,0], thread: [3,0,0] Assertion `i < n` failed." in said or (
        "block: [1,0,0], thread: [3,0,0] Assertion `i < n` failed." in said
    ), said
