"""HCQ_CUDACPU_CHECK=1 finds the mistake that a kernel has, says where it is, and finds nothing where there is none.

What does not live here: kernels of the kinds people write under the checks (tests/clients/cuda/kernels).
"""

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TEXT = (HERE / "check_kernels.ptx").read_text()

ILLEGAL, MISALIGNED, FAILED = 700, 716, 719

SHARED = "of shared memory"
# (kernel, threads, dynamic shared memory, more) -> (result, thread, what is said)
MISTAKES = {
    ("write_by_thread", 65, 0, ""): (ILLEGAL, "(64, 0, 0)", "a write of 4 bytes at 0x.*, 256 bytes after the start"),
    ("read_before", 1, 0, ""): (ILLEGAL, "(0, 0, 0)", "a read of 4 bytes at 0x"),
    ("vector_over_the_end", 1, 0, ""): (ILLEGAL, "(0, 0, 0)", "a read of 16 bytes at 0x.*, 256 bytes after"),
    ("misaligned_global", 1, 0, ""): (MISALIGNED, "(0, 0, 0)", "a read of 4 bytes at 0x.*, which is no multiple of 4"),
    ("atomic_at_null", 3, 0, ""): (ILLEGAL, "(0, 0, 0)", "an atomic of 4 bytes at 0x0, where no memory is"),
    ("write_by_thread", 1, 0, "freed"): (ILLEGAL, "(0, 0, 0)", "a write of 4 bytes at 0x"),
    ("shared_over_the_end", 32, 64, ""): (ILLEGAL, "(16, 0, 0)", f"a write of 4 bytes at 64 {SHARED}, .* has 64"),
    ("shared_misaligned", 1, 64, ""): (MISALIGNED, "(0, 0, 0)", "a write of 2 bytes at 0x3, which is no multiple of 2"),
    ("shared_unwritten", 32, 128, ""): (FAILED, "(7, 0, 0)", f"at 28 {SHARED}, where byte 28 was never written"),
    ("race_with_the_neighbour", 32, 128, ""): (FAILED, "", rf"a race: it writes byte 0x\d {SHARED}, .* wrote"),
    ("write_after_read", 32, 16, ""): (FAILED, "", f"a race: it (writes|reads) byte 0x0 {SHARED}"),
    ("shuffle_between_read_and_write", 32, 16, ""): (FAILED, "(0, 0, 0)", f"it writes byte 0x0 {SHARED}, .* read,"),
    ("race_in_global_memory", 40, 0, ""): (FAILED, "(1, 0, 0)", r"of global memory, which thread \(0, 0, 0\) wrote"),
    ("atomic_beside_a_write", 40, 16, ""): (FAILED, "(1, 0, 0)", f"changes by an atomic byte 0x0 {SHARED}, .* wrote"),
    ("read_beside_an_atomic", 2, 16, ""): (FAILED, "(1, 0, 0)", f"reads byte 0x0 {SHARED}, .* changed by an atomic,"),
    ("write_beside_an_atomic", 2, 0, ""): (FAILED, "(1, 0, 0)", "of global memory, .* changed by an atomic,"),
    ("local_over_the_end", 9, 0, ""): (ILLEGAL, "(8, 0, 0)", "a write of 4 bytes at 32 of local memory, .* has 32"),
    ("divergent_barrier", 32, 0, ""): (FAILED, "", "a divergent barrier: it stands at barrier 0 here, and thread"),
    ("heap_over_the_end", 1, 0, ""): (ILLEGAL, "(0, 0, 0)", "40 bytes after the start of 40 bytes"),
}  # fmt: skip

# ... -> the words that the kernel leaves, at the front
RIGHT = {
    ("write_by_thread", 64, 0, ""): list(range(64)),
    ("barrier_between_neighbours", 64, 256, ""): [i ^ 1 for i in range(64)],
    ("warp_between_read_and_write", 32, 16, ""): [],
    ("atomics_in_global_memory", 40, 0, ""): [0, 0, 0, 0, 780],
    ("atomics_after_a_write", 40, 16, ""): [40],
    ("handed_on_by_an_atomic", 8, 0, ""): [0, 1, 77],
    ("made_and_taken", 64, 128, ""): list(range(32)),
    ("variables", 1, 0, ""): [10],
}


def run(cases, file=HERE / "check_kernels.ptx", **more):
    done = subprocess.run(
        [sys.executable, HERE / "check_run.py", file],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **more},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def answers():
    cases = [*MISTAKES, *RIGHT]
    return dict(zip(cases, run(cases, HCQ_CUDACPU_CHECK="1"), strict=True))


def line_of(kernel, said):
    """The PTX line that a message names, and whether it is one of the kernel's."""
    number = int(re.search(r"PTX line (\d+)", said)[1])
    begins = TEXT[: TEXT.index(f".entry {kernel}(")].count("\n") + 1
    ends = begins + TEXT.split(f".entry {kernel}(")[1].split("\n}")[0].count("\n")
    assert begins < number <= ends, f"{said}: the kernel is in lines {begins} to {ends}"
    return TEXT.splitlines()[number - 1]


@pytest.mark.parametrize("case", MISTAKES, ids=lambda case: case[0] + case[3])
def test_a_mistake_is_found_and_said_where(answers, case):
    result, thread, text = MISTAKES[case]
    got, said, _ = answers[case]
    assert got == result, said
    assert f"kernel '{case[0]}', block (0, 0, 0), thread {thread or '('}" in said
    assert re.search(text, said), said
    assert re.search(r"^\s*(@!?%\w+\s+)?(ld|st|atom|red|bar)\b", line_of(case[0], said)), said


def test_the_source_line_is_said(answers):
    for case, line in (("write_by_thread", 12), ("race_with_the_neighbour", 40)):
        said = next(answers[each][1] for each in MISTAKES if each[0] == case)
        assert f"kernel.cu:{line}" in said, said


@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case[0])
def test_nothing_is_found_where_all_is_right(answers, case):
    result, said, values = answers[case]
    assert result == 0, said
    assert values[: len(RIGHT[case])] == RIGHT[case]


def test_without_the_checks_a_race_is_not_looked_for():
    case = ("race_in_global_memory", 40, 0, "")
    ((result, said, _),) = run([case], HCQ_CUDACPU_CHECK="0")
    assert (result, said) == (0, "")


# -- races of programs made at random, against what barriers promise --------------------------------------------------

THREADS, WORDS, PROGRAMS = 96, 7, 40


def program(choose):
    """Steps that all threads take: a barrier of the block, one of the warps, or an access: (write, first, end, a, b),
    by threads first to end, of word (a * thread + b) % WORDS."""
    steps = []
    for _ in range(choose.randint(2, 7)):
        kind = choose.random()
        if kind < 0.3:
            steps.append("bar.sync 0")
        elif kind < 0.5:
            steps.append("bar.warp.sync 0xffffffff")
        else:
            few = choose.random() < 0.6
            first = choose.randrange(THREADS)
            end = first + choose.randint(1, 3) if few else THREADS
            a = choose.choice((0, 0, 1, 2))
            steps.append(
                (choose.random() < 0.5, 0 if not few else first, min(end, THREADS), a, choose.randrange(WORDS))
            )
    return steps


def races(steps):
    """Whether two threads touch a word, one of them writing, with no barrier of both between."""
    seen = []  # (thread, word, write, barriers of the block before, barriers of the warps before)
    whole = warps = 0
    for step in steps:
        if isinstance(step, str):
            whole, warps = whole + (step == "bar.sync 0"), warps + 1
            continue
        write, first, end, a, b = step
        for thread in range(first, end):
            now = thread, (a * thread + b) % WORDS, write, whole, warps
            for other, word, wrote, whole_then, warps_then in seen:
                ordered = whole_then < whole or (warps_then < warps and other // 32 == thread // 32)
                if word == now[1] and other != thread and (write or wrote) and not ordered:
                    return True
            seen.append(now)
    return False


def text_of(name, steps):
    lines = []
    for step in steps:
        if isinstance(step, str):
            lines.append(f"  {step};")
            continue
        write, first, end, a, b = step
        access = "st.shared.u32 [%at], %t;" if write else "ld.shared.u32 %got, [%at];"
        lines += [
            f"  setp.ge.u32 %p, %t, {first};",
            f"  setp.lt.and.u32 %p, %t, {end}, %p;",
            f"  mad.lo.u32 %at, %t, {a}, {b};",
            f"  rem.u32 %at, %at, {WORDS};",
            "  shl.b32 %at, %at, 2;",
            "  add.u32 %at, %at, %base;",
            f"  @%p {access}",
        ]
    return f"""
.visible .entry {name}(.param .u64 p) {{
  .reg .b32 %t, %at, %got, %base; .reg .pred %p;
  mov.u32 %t, %tid.x;
  mov.u32 %base, dynamic;
  setp.lt.u32 %p, %t, {WORDS};
  mad.lo.u32 %at, %t, 4, %base;
  @%p st.shared.u32 [%at], %t;
  bar.sync 0;
{chr(10).join(lines)}
  ret;
}}
"""


def test_a_race_is_found_where_there_is_one_and_nowhere_else(tmp_path):
    choose = random.Random(1)
    programs = {f"k{n}": program(choose) for n in range(PROGRAMS)}
    # All read; what the writer's own warp reads later must not hide that the others did.
    warp, all_read = "bar.warp.sync 0xffffffff", (False, 0, THREADS, 0, 0)
    programs["hidden"] = [all_read, warp, (False, 1, 3, 0, 0), warp, (True, 0, 1, 0, 0)]
    file = tmp_path / "random.ptx"
    head = ".version 7.0\n.target sm_70\n.address_size 64\n.extern .shared .align 16 .b8 dynamic[];\n"
    file.write_text(head + "".join(text_of(*each) for each in programs.items()))
    expected = {name: races(steps) for name, steps in programs.items()}
    assert 10 < sum(expected.values()) < PROGRAMS - 10
    got = run([(name, THREADS, 4 * WORDS, "") for name in programs], file, HCQ_CUDACPU_CHECK="1")
    for (name, steps), (result, said, _) in zip(programs.items(), got, strict=True):
        assert (result == FAILED and "a race" in said) == expected[name], f"{steps}\n{said}"
        assert result in (0, FAILED), said
