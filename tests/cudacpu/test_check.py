"""HCQ_CUDACPU_CHECK=1 finds the mistake that a kernel has, says where it is, and finds nothing where there is none.

What does not live here: kernels of the kinds people write under the checks (tests/clients/cuda/kernels).
"""

import json
import os
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
    ("handed_on_by_an_atomic", 8, 0, ""): [0, 1, 77],
    ("made_and_taken", 64, 128, ""): list(range(32)),
    ("variables", 1, 0, ""): [10],
}


def run(cases, **more):
    done = subprocess.run(
        [sys.executable, HERE / "check_run.py"],
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
    assert re.search(r"^\s*(@%\w+\s+)?(ld|st|atom|red|bar)\b", line_of(case[0], said)), said


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
