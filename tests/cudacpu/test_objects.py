"""Objects that are made of PTX: what LLVM's own loader needs of them."""

import platform

import pytest

from hcq.cudacpu.compiler import PtxCompiler
from hcq.cudacpu.image import unpack
from hcq.cudacpu.ptx.errors import NoRoom
from hcq.drivers.cpu.elf import Object

PTX = """
.version 7.0
.target sm_70
.address_size 64
.global .align 4 .u32 numbers[4] = {1, 2, 3, 4};
.visible .entry k(.param .u64 p) {
  .reg .b64 %d<4>; .reg .f32 %f<4>; .reg .b32 %r<4>; .reg .f64 %g<3>;
  ld.param.u64 %d1, [p];
  ld.global.f32 %f1, [%d1];
  sin.approx.f32 %f2, %f1;
  fma.rn.f32 %f2, %f2, 0f40490FDB, 0f3F9E0652;
  st.global.f32 [%d1], %f2;
  ld.global.u32 %r1, [numbers + 8];
  st.global.u32 [%d1 + 4], %r1;
  trap;
}
"""

R_X86_64_64 = 1


@pytest.mark.skipif(platform.machine() != "x86_64", reason="relocations are the processor's own")
def test_the_parts_of_an_object_may_lie_anywhere():
    """LLVM's loader puts each section where there is room, which may be more than 2 GiB from the others."""
    (code,) = unpack(PtxCompiler(80, cachekey=None).compile(PTX)).objects
    object_ = Object(code)
    kinds = [row[1] for section in object_.sections for row in object_.relocations(section)]
    assert kinds
    assert set(kinds) == {R_X86_64_64}


def test_what_was_compiled_for_a_larger_device_is_refused_for_a_smaller_one():
    PtxCompiler(80, memory=16).image(PTX)
    with pytest.raises(NoRoom, match="16 bytes, the device 15"):
        PtxCompiler(80, memory=15).image(PTX)
