"""The words that PTX has as modifiers, so that a misspelt one is told of instead of being passed over."""

from __future__ import annotations

import re

from hcq.cudacpu.lower.types import is_type

_TEXT = """
rn rz rm rp rni rzi rmi rpi rna rs ftz sat satfinite relu approx full noftz scaled
eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan NaN and or xor popc
wide cc finite infinite number notanumber normal subnormal abs xorsign
f4e b4e rc8 ecl ecr rc16 clamp wrap l r shiftamt
weak volatile relaxed acquire release acq_rel sc mmio cta cluster gpu sys gl
global shared local const param generic ca cg cs lu cv wb wt nc unified L1 L2
cas exch add inc dec min max async bulk tensor commit_group wait_group wait_all read mbarrier noinc bulk_group
sync aligned warp arrive red all any uni ballot up down bfly idx wait
trans row col a b c d load store mma sp ordered_metadata block_scale
init inval arrive_drop expect_tx complete_tx test_wait try_wait pending_count noComplete parity
to proxy alias mbarrier_init launch_dependents fractional range cvt pack po shr7 shr15 reduce prefetch
e2m1 e2m3 e3m2 ue8m0 e2m1x2 e2m3x2 e3m2x2 ue8m0x2 e2m1x4 e2m3x4 e3m2x4 e4m3x4 e5m2x4 s2f6x2 ue4m3
b1 u4 s4 u2 s2 b4x16_p64 b6x16_p32 b8x16 im2col tile tensormap cp_mask mask 1d 2d 3d 4d 5d
"""
_WORDS = frozenset(_TEXT.split())
_PATTERN = re.compile(r"m\d+n\d+(k\d+)?|[xv]\d+|\w+::[\w:]+|b\d+(x\d+\w*)?")


def known(modifier: str) -> bool:
    """Whether PTX has such a modifier, on whatever instruction."""
    return modifier in _WORDS or is_type(modifier) or _PATTERN.fullmatch(modifier) is not None
