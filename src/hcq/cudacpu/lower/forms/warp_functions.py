"""Functions of LLVM IR that do an operation for all warps of a block, 32 lanes at a time: what each thread gave stands
in an array, its answer goes into another one. What does not live here: who calls them (lanes).
"""

from __future__ import annotations

Sources = tuple[tuple[int, bool], ...]

_LANES = "<32 x i32>"
# Of a warp's values: who gave the operation's number, and who of them said yes.
_WHO = f"""  %numbers = lshr {_LANES} %values, splat (i32 1)
  %wanted.first = insertelement {_LANES} poison, i32 %number, i32 0
  %wanted = shufflevector {_LANES} %wanted.first, {_LANES} poison, {_LANES} zeroinitializer
  %said = icmp eq {_LANES} %numbers, %wanted
  %said.bits = bitcast <32 x i1> %said to i32
  %left = sub i32 %threads, %first
  %short = icmp ult i32 %left, 32
  %rest = and i32 %left, 31
  %above = shl i32 1, %rest
  %some = sub i32 %above, 1
  %existing = select i1 %short, i32 %some, i32 -1
  %there = and i32 %said.bits, %existing
  %yes.lanes = trunc {_LANES} %values to <32 x i1>
  %yes.bits = bitcast <32 x i1> %yes.lanes to i32
  %agree = and i32 %yes.bits, %there"""


def sources(lane: int, clamp: int, mode: int) -> Sources:
    """For each lane the one that it reads in a shuffle by a constant, and if that is in reach (PTX, "shfl.sync")."""
    found = []
    for own in range(32):
        segment, offset = clamp >> 8 & 31, lane & 31
        least = own & segment
        most = least | clamp & 31 & ~segment
        source = (own - offset, own + offset, own ^ offset, least | offset & ~segment)[mode]
        inside = source >= most if mode == 0 else source <= most
        found.append((source if inside else own, inside))
    return tuple(found)


def shuffle(name: str, order: Sources) -> str:
    """`void name(given, taken, number, threads)`: the lanes in another order."""
    lanes = ", ".join(f"i32 {source}" for source, _ in order)
    return _function(name, ("given", "taken"), f"""
  %values = load {_LANES}, ptr %given.at, align 64
  %moved = shufflevector {_LANES} %values, {_LANES} poison, {_LANES} <{lanes}>
  store {_LANES} %moved, ptr %taken.at, align 64""")  # fmt: skip


def vote(name: str) -> str:
    """`void name(given, here, yes, number, threads)`: who gave 2 * number + 1 or 2 * number, and who the former."""
    return _function(name, ("given", "here", "yes"), f"""
  %values = load {_LANES}, ptr %given.at, align 64
{_WHO}
  %there.first = insertelement {_LANES} poison, i32 %there, i32 0
  %there.all = shufflevector {_LANES} %there.first, {_LANES} poison, {_LANES} zeroinitializer
  store {_LANES} %there.all, ptr %here.at, align 64
  %agree.first = insertelement {_LANES} poison, i32 %agree, i32 0
  %agree.all = shufflevector {_LANES} %agree.first, {_LANES} poison, {_LANES} zeroinitializer
  store {_LANES} %agree.all, ptr %yes.at, align 64""")  # fmt: skip


def count(name: str) -> str:
    """`i32 name(given, number, threads)`: how many gave 2 * number + 1 or 2 * number, times 2**16, and how many the
    former."""
    return _function(name, ("given",), f"""
  %values = load {_LANES}, ptr %given.at, align 64
{_WHO}
  %there.count = call i32 @llvm.ctpop.i32(i32 %there)
  %there.upper = shl i32 %there.count, 16
  %agree.count = call i32 @llvm.ctpop.i32(i32 %agree)
  %both = or i32 %there.upper, %agree.count
  %so.far = add i32 %sum, %both""", "%sum = phi i32 [ 0, %entry ], [ %so.far, %warp ]", "i32 %so.far")  # fmt: skip


def _function(name: str, arrays: tuple[str, ...], body: str, kept: str = "", result: str = "void") -> str:
    parameters = ", ".join(f"ptr noalias %{each}" for each in arrays)
    addresses = "\n".join(f"  %{each}.at = getelementptr i32, ptr %{each}, i64 %at" for each in arrays)
    return f"""define internal {result.split()[0]} @{name}({parameters}, i32 %number, i32 %threads) noinline #0 {{
entry:
  br label %warp
warp:
  %first = phi i32 [ 0, %entry ], [ %next, %warp ]
  {kept}
  %at = zext i32 %first to i64
{addresses}{body}
  %next = add nuw i32 %first, 32
  %more = icmp ult i32 %next, %threads
  br i1 %more, label %warp, label %end
end:
  ret {result}
}}"""
