"""Every form of every instruction (ptx_forms.txt) is run or refused by name, and what its modifiers say is done.

What does not live here: each instruction at the edges of its operands (test_integers.py, test_floats.py and others).
"""

from __future__ import annotations

import os
import random
import re
import subprocess
from pathlib import Path

import float_cases
import integer_model
import model
import numpy as np
import ptx_forms
import pytest
from opcodes import ROOM, Opcodes
from ptx_forms import FILE, HEAD, Form
from ptx_host import Loaded, llvm, machine, optimised
from toolkit import ptxas

from hcq.cudacpu import lower, ptx
from hcq.cudacpu.lower.types import WIDTHS

pytestmark = pytest.mark.thorough
FORMS = ptx_forms.forms()
RUN = [each for each in FORMS if not each.refused]
TARGETS = ("sm_75", "sm_80", "sm_90a", "sm_100a")
TOGETHER = 150  # in a module


def translated(texts: list[str]) -> lower.Translated:
    return lower.translate(ptx.parse(ptx_forms.module(texts)), lower.Options(capability=100, regions=False))


def test_every_form_is_run_or_refused_by_name() -> None:
    wrong = []
    for form in FORMS:
        try:
            translated([form.text])
            said = ""
        except ptx.Unsupported as error:
            said = str(error)
        except Exception as error:
            wrong.append(f"{form.text} {type(error).__name__}: {error}")
            continue
        name = "%" if form.head.startswith("mov") else form.head.partition(".")[0]
        if bool(said) != form.refused or (said and name not in said):
            wrong.append(f"{form.text} {said or 'is run'}")
    assert not wrong, "\n".join(wrong[:30])


@pytest.mark.parametrize("start", range(0, len(RUN), 1000))
def test_every_form_becomes_machine_code(start: int) -> None:
    llvm()
    for first in range(start, min(start + 1000, len(RUN)), TOGETHER):
        made = translated([each.text for each in RUN[first : min(first + TOGETHER, start + 1000)]])
        assert machine().emit_object(optimised(made.llvm_ir, 1))


def test_ptxas_takes_every_form(tmp_path: Path) -> None:
    """Of one of the targets: so that the list holds nothing but PTX."""
    left = {number: form.text for number, form in enumerate(FORMS)}
    said: dict[int, str] = {}
    for target in TARGETS:
        for number in _refused_by_ptxas(left, target, tmp_path, said):
            left[number] = FORMS[number].text
    assert not left, "\n".join(f"{text} {said.get(number, '')}" for number, text in list(left.items())[:30])


def _refused_by_ptxas(left: dict[int, str], target: str, folder: Path, said: dict[int, str]) -> list[int]:
    """Take out of `left` what a target doesn't refuse."""
    numbers, texts = list(left), list(left.values())
    left.clear()
    source = ptx_forms.module(texts, target)
    starts = [n for n, line in enumerate(source.splitlines(), 1) if line.startswith(".visible .entry")]
    file = folder / "forms.ptx"
    file.write_text(source)
    done = subprocess.run(
        [ptxas(), f"-arch={target}", "-O0", str(file), "-o", os.devnull], capture_output=True, text=True, timeout=300
    )
    refused = set()
    for line, why in re.findall(r"line (\d+); (?:error|fatal)\s*: (.*)", done.stderr):
        place = np.searchsorted(starts, int(line), side="right") - 1
        if place >= 0:
            refused.add(numbers[place])
            said[numbers[place]] = why
    assert refused or done.returncode == 0, done.stderr[-2000:]
    return sorted(refused)


# -- memory -----------------------------------------------------------------------------------------------------------

BYTES = 32  # of memory that a form has
OPERATIONS = ("add", "and", "or", "xor", "exch", "cas", "inc", "dec", "min", "max")
_REGISTER = re.compile(r"%([yhrdq])(\d+)")
_BITS = {"y": 8, "h": 16, "r": 32, "d": 64, "q": 128}
MEMORY = [
    each for each in RUN
    if each.head.partition(".")[0] in ("ld", "ldu", "st", "atom", "red") and "param" not in each.space
    and not each.head.startswith(("st.bulk", "ld.param"))
]  # fmt: skip


def registers(text: str) -> list[tuple[str, int]]:
    """Name and bits of what an operand's text names, in order."""
    return [(f"%{letter}{number}", _BITS[letter]) for letter, number in _REGISTER.findall(text)]


def steps(form: Form) -> str:
    """Memory is filled, registers are loaded, the form is run, and memory and registers are stored."""
    at = {"shared": "[%ss+{n}]", "local": "[%sl+{n}]"}.get(form.space, "[%dg+{n}]")
    space = {"shared": ".shared", "local": ".local"}.get(form.space, ".global")
    lines = ["mov.b64 %dg, %din;"] if "nc" in form.modifiers or form.space == "const" else []  # nobody writes it
    for n in range(0, BYTES, 8) if not lines else ():
        lines.append(f"ld.global.b64 %d30, [%din+{n}]; st{space}.b64 {at.format(n=n)}, %d30;")
    names = registers(" ".join(each for each in form.operands if not each.startswith("[")))
    if "mbarrier" in form.head:
        lines.append("mov.u32 %r30, 1; mbarrier.init.shared.b64 [%sb], %r30; mov.u32 %r30, 4096;")
        lines.append("mbarrier.expect_tx.relaxed.cta.shared.b64 [%sb], %r30;")
    for n, (name, bits) in enumerate(names):
        lines.append(f"ld.global.b{bits} {name}, [%din+{BYTES + 16 * n}];")
    lines.append(form.text)
    for n, (name, bits) in enumerate(names):
        lines.append(f"st.global.b{bits} [%dout+{BYTES + 16 * n}], {name};")
    for n in range(0, BYTES, 8):
        lines.append(f"ld{space}.b64 %d30, {at.format(n=n)}; st.global.b64 [%dout+{n}], %d30;")
    return "\n".join(lines)


def wanted(form: Form, given: bytes) -> bytearray:
    """What memory and registers hold afterwards."""
    after = bytearray(given)
    base = form.head.partition(".")[0]
    type = form.types[-1]
    size = WIDTHS[type] // 8
    if base in ("ld", "ldu"):
        for n, (_, bits) in enumerate(registers(form.operands[0])):
            assert bits == WIDTHS[type]
            after[BYTES + 16 * n : BYTES + 16 * n + size] = given[n * size : n * size + size]
        return after
    first = registers(form.operands[0]) if base == "atom" else []
    sources = registers(form.operands[2 if base == "atom" else 1])
    for n in range(len(sources)):
        place = slice(n * size, n * size + size)
        slot = BYTES + 16 * (len(first) + n)
        operand = given[slot : slot + size]
        if base == "st":
            after[place] = operand
            continue
        if first:
            after[BYTES + 16 * n : BYTES + 16 * n + size] = given[place]
        other = given[slot + 16 : slot + 16 + size]
        after[place] = combined(form, type, given[place], operand, other)
    return after


def combined(form: Form, type: str, old: bytes, operand: bytes, other: bytes) -> bytes:
    operation = next(each for each in form.modifiers if each in OPERATIONS)
    if type[-2:] == "x2":
        return b"".join(combined(form, type[:-2], old[n : n + 2], operand[n : n + 2], b"") for n in (0, 2))
    a, b = (int.from_bytes(each, "little") for each in (old, operand))
    bits = WIDTHS[type]
    if type in model.FORMATS:
        flags = "add.rn" if operation == "add" else operation
        found = model.evaluate(f"{flags}.{type}", a, b)
        return (found & ((1 << bits) - 1)).to_bytes(bits // 8, "little")
    x, y = integer_model.value(a, type), integer_model.value(b, type)
    result = {
        "add": x + y, "and": x & y, "or": x | y, "xor": x ^ y, "exch": y, "min": min(x, y), "max": max(x, y),
        "inc": 0 if x >= y else x + 1, "dec": y if x == 0 or x > y else x - 1,
        "cas": int.from_bytes(other, "little") if x == y else x,
    }[operation]  # fmt: skip
    return (result & ((1 << bits) - 1)).to_bytes(bits // 8, "little")


def memory_and_registers(draw: random.Random, form: Form) -> bytes:
    """Bytes; of floats numbers that are finite; of cas sometimes what it looks for."""
    type = form.types[-1]
    size = BYTES + 16 * 24
    kind = type.removesuffix("x2")
    if kind not in model.FORMATS:
        given = bytearray(draw.randbytes(size))
        if "cas" in form.modifiers and draw.random() < 0.5:
            given[BYTES + 16 : BYTES + 32] = given[:16]
        return bytes(given)
    form_ = model.FORMATS[kind]
    step = form_.bits // 8
    found = bytearray()
    while len(found) < size:
        bits = float_cases.number(draw, kind)
        if model.decode(bits, form_).finite:
            found += bits.to_bytes(step, "little")
    return bytes(found)


@pytest.mark.parametrize("start", range(0, len(MEMORY), 500))
def test_every_form_of_loads_stores_and_atomics_does_what_its_type_and_operation_say(start: int) -> None:
    chosen = MEMORY[start : start + 500]
    names = [f"m{n}" for n in range(len(chosen))]
    kernels = "".join(
        f".visible .entry {name}(.param .b64 in, .param .b64 out) {{\n{ptx_forms.REGISTERS}"
        ".reg .b64 %din, %dout; ld.param.b64 %din, [in]; ld.param.b64 %dout, [out]; "
        "mov.u64 %dg, gvar; mov.u32 %ss, svar; mov.u32 %sb, sbar; mov.u64 %sl, lvar; mov.u64 %db, gvar;\n"
        f"{steps(form)}\nret; }}\n"
        for name, form in zip(names, chosen, strict=True)
    )
    loaded = Loaded(HEAD.format(version="9.0", target="sm_100a") + kernels)
    draw = random.Random(start)
    wrong = []
    for name, form in zip(names, chosen, strict=True):
        for _ in range(3):
            given = memory_and_registers(draw, form)
            out = np.frombuffer(given, np.uint8).copy()
            loaded.launch(name, np.frombuffer(given, np.uint8).copy(), out)
            after = wanted(form, given)
            if bytes(out) != bytes(after):
                at = next(n for n in range(len(given)) if out[n] != after[n])
                wrong.append(f"{form.text}: byte {at} is {out[at]:#x}, should be {after[at]:#x}")
                break
    assert not wrong, "\n".join(wrong[:30])


# -- arithmetic -------------------------------------------------------------------------------------------------------

MODELLED = (
    "add", "sub", "mul", "fma", "mad", "div", "rcp", "sqrt", "neg", "abs", "min", "max", "copysign", "testp", "cvt",
)  # fmt: skip


def arithmetic() -> list[float_cases.Case]:
    """The forms of floats that the model knows."""
    found = []
    for form in RUN:
        base, types = form.head.partition(".")[0], form.types
        floats = [each for each in types if each.removesuffix("x2") in model.FORMATS or each == "f32x2"]
        if base not in MODELLED or not floats or form.head.startswith(("cvt.pack", "cvt.rs")):
            continue
        if "approx" in form.modifiers or "full" in form.modifiers:
            continue
        if base == "cvt":
            if len(form.operands) != 2 or any(each.endswith("x2") or each == "ue8m0x2" for each in types):
                continue
            found.append(float_cases.Case(form.head, types[0], (types[1],)))
            continue
        if len(types) == 2:  # mixed
            count = len(form.operands) - 2
            found.append(float_cases.Case(form.head, "f32", (*(types[1],) * count, "f32")))
            continue
        d = "pred" if base == "testp" else types[0]
        found.append(float_cases.Case(form.head, d, (types[0],) * (len(form.operands) - 1)))
    return list({(each.opcode, each.sources): each for each in found}.values())


def test_every_form_of_float_arithmetic_agrees_with_the_model() -> None:
    cases = arithmetic()
    assert len(cases) > 600
    opcodes = Opcodes(cases)
    draw = random.Random(23)
    operands = {id(each): float_cases.operands(draw, each, ROOM) for each in cases}
    results = opcodes.run_all(operands, cases)
    wrong = [
        said
        for each, got in zip(cases, results, strict=True)
        for x, y in zip(operands[id(each)], got, strict=True)
        if (said := model.disagreement(each.opcode, each.d, x, y))
    ]
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong[:30])


def comparisons() -> list[tuple[Form, float_cases.Case]]:
    """set and setp of single values, each with its predicate, where it has one, from the operand {c}."""
    found = []
    for n, form in enumerate(RUN):
        base, types = form.head.partition(".")[0], form.types
        if base not in ("set", "setp") or types[-1].endswith("x2"):
            continue
        combine = next((each for each in form.modifiers if each in ("and", "or", "xor")), "")
        sources = (types[-1], types[-1], *(("b32",) if combine else ()))
        before = f".reg .pred %c{n}, %p{n}, %q{n}; .reg .b32 %u{n}, %v{n}; "
        after = f", {'!' if form.operands[-1].startswith('!') else ''}%c{n}" if combine else ""
        if combine:
            before += f"setp.ne.u32 %c{n}, {{c}}, 0; "
        if base == "set":
            text, d = f"{before}{form.head} {{d}}, {{a}}, {{b}}{after}", types[0]
        else:
            pair = "|" in form.operands[0]
            text = f"{before}{form.head} %p{n}{f'|%q{n}' if pair else ''}, {{a}}, {{b}}{after}; "
            second = f"selp.b32 %v{n}, 2, 0, %q{n}" if pair else f"mov.u32 %v{n}, 0"
            text, d = f"{text}selp.b32 %u{n}, 1, 0, %p{n}; {second}; or.b32 {{d}}, %u{n}, %v{n}", "b32"
        found.append((form, _Compared(form.head, d, sources, text)))
    return found


class _Compared(float_cases.Case):
    def __init__(self, opcode: str, d: str, sources: tuple[str, ...], text: str) -> None:
        super().__init__(opcode, d, sources)
        object.__setattr__(self, "_text", text)

    @property
    def text(self) -> str:
        return self._text  # type: ignore[attr-defined]


UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
ONES = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}


def compared(form: Form, operands: tuple[int, ...]) -> int:
    type, name = form.types[-1], form.modifiers[0]
    if type in model.FORMATS:
        a, b = (model.decode(x, model.FORMATS[type], "ftz" in form.modifiers) for x in operands[:2])
        holds = model.compare(name, a, b)
    else:
        x, y = (integer_model.value(each, type) for each in operands[:2])
        kind = UNSIGNED.get(name, name)
        holds = {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}[kind]
    combine = next((each for each in form.modifiers if each in ("and", "or", "xor")), "")
    both = [holds, not holds]
    if combine:
        c = bool(operands[2]) != form.operands[-1].startswith("!")
        both = [{"and": each and c, "or": each or c, "xor": each != c}[combine] for each in both]
    if form.head.startswith("setp"):
        return int(both[0]) | 2 * int(both[1] and "|" in form.operands[0])
    to = form.types[0]
    return (ONES[to] if to in ONES else (1 << WIDTHS[to]) - 1) if both[0] else 0


def test_every_form_of_comparison_agrees_with_the_model() -> None:
    pairs = comparisons()
    cases = [case for _, case in pairs]
    opcodes = Opcodes(cases)
    draw = random.Random(24)
    operands = {id(each): _compared_operands(draw, each) for each in cases}
    results = opcodes.run_all(operands, cases)
    wrong = [
        f"{case.text} of {[hex(v) for v in x]} gave {y:#x}, not {compared(form, x):#x}"
        for (form, case), got in zip(pairs, results, strict=True)
        for x, y in zip(operands[id(case)], got, strict=True)
        if y != compared(form, x)
    ]
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong[:30])


def _compared_operands(draw: random.Random, case: float_cases.Case) -> list[tuple[int, ...]]:
    found = []
    for n in range(ROOM):
        a, b = (float_cases.number(draw, case.sources[0]) for _ in range(2))
        found.append((a, a if n % 5 == 0 else b, *((n % 2,) if len(case.sources) == 3 else ())))
    return found


def test_the_table_of_forms_is_what_the_page_says() -> None:
    page = (FILE.parents[2] / "docs" / "ptx.md").read_text()
    assert ptx_forms.table() in page, "python tests/cudacpu/ptx_forms.py writes the table"
