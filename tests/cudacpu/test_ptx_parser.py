"""PTX text: what is right is taken, what is wrong is told of with its line and with what was expected."""

from __future__ import annotations

import pytest
from ptx_host import HEAD

from hcq.cudacpu import lower, ptx
from hcq.cudacpu.ptx.nodes import Address, Immediate, Instruction, Pair, Register, Symbol, Vector


def body(text: str) -> list:
    module = ptx.parse(f"{HEAD}.entry k() {{\n{text}\n}}")
    return list(module.functions[0].body or [])


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("add.u32 %r1, %r2, 1;", 5, "register %r1 is not declared"),
        (".reg .u33 %r<3>;", 5, "expected a type"),
        (".reg .u32 %r<3>;\nadd.u32 %r1 %r2, 1;", 6, "expected ',' or ';' after an operand, found '%r2'"),
        (".reg .u32 %r1;\n.reg .u32 %r1;", 6, "declared twice"),
        (".reg .u32 %r1;\n@%r1 ret;", 6, "a guard is a register of type .pred"),
        ("bra L;\nL:\nL:", 7, "L is declared twice"),
        ("ld.u32 %tid.q, [x];", 5, "%tid has the components x, y, z, w"),
        (".reg .b64 %a;\nld.u64 %a, [%a;", 6, "expected ']' after an address, found ';'"),
        ("mov.u32 \x01;", 5, "no token of PTX begins with"),
        ("1 + 2;", 5, "expected an instruction, a directive, a label or '}'"),
        (".reg .u32 %r;\nmov.u32 %r, 4 / 0;", 6, "divides by zero"),
        (".shared .align 3 .b8 x[4];", 5, "an alignment is a power of two, found 3"),
        ("{ ret;", 6, "found the end of the text"),
    ],
)
def test_an_error_names_the_line_and_what_was_expected(text, line, said):
    with pytest.raises(ptx.PtxError) as caught:
        body(text)
    assert caught.value.line == line and said in str(caught.value) and f"line {line}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tcgen05.fence::before_thread_sync;", "tcgen05.fence::before_thread_sync is not run here"),
        ("wgmma.fence.sync.aligned;", "wgmma.fence.sync.aligned is not run here"),
        (".reg .b64 %a;\ncp.async.bulk.tensor.1d.shared::cluster.global.tile [%a], [%a, {0}], [%a];", "tensor memory"),
        ("call nobody;", "the function nobody is not declared"),
        ("bra nowhere;", "nowhere is no label"),
        (".reg .b32 %r;\nld.global.u32 %r, [nothing];", "nothing is not declared"),
        (".reg .b32 %r;\nadd.u32 %r, %r;", "add.u32 takes 3 operands, found 2"),
        (".reg .b32 %r;\nld.nothing.u32 %r, [%r];", "ld.nothing.u32: .nothing is no modifier of PTX"),
        ("ret ret;", "ret takes 0 operands, found 1"),
        ("bra;", "bra takes 1 operands, found 0"),
        (".reg .b64 %a;\natom.add.u64 %a, [%a];", "atom.add.u64 has too few operands"),
        (".reg .b32 %r;\nadd.u32 7, %r, %r;", "expected a register as destination"),
        (".reg .b64 %a;\ntex.1d.v4.f32.s32 {%a, %a, %a, %a}, [%a, {0}];", "tex.1d.v4.f32.s32 is not run here"),
    ],
)
def test_what_is_not_run_is_refused_by_name_with_its_line(text, said):
    module = ptx.parse(f"{HEAD}.entry k() {{\n{text}\n}}")
    with pytest.raises(ptx.PtxError) as caught:
        lower.translate(module)
    assert said in str(caught.value) and caught.value.line == 5 + text.count("\n")


def test_a_recursive_function_with_a_barrier_is_refused_by_name():
    text = f"{HEAD}.func f() {{ bar.sync 0; call f; ret; }}\n.entry k() {{ call f; ret; }}"
    with pytest.raises(lower.Unsupported, match="f calls itself"):
        lower.translate(ptx.parse(text))


def test_operands_have_the_forms_that_the_manual_names():
    found = body(
        """.reg .b32 %r<9>; .reg .b64 %a; .reg .pred p, q; .reg .v2 .f32 %v;
        setp.eq.and.u32 p|q, %r1, -0x10, !p;
        ld.global.v2.u32 {%r1, _}, [%a+-8];
        mov.f32 %v.y, 0f3F800000;
        mov.b64 %a, {%r1, %r2};
        ld.shared.u32 %r3, [s + 4 * 3];
        mov.v2.f32 %v, %v;
        .shared .u32 s[9];"""
    )
    setp, load, one, pack, shared, both = (each for each in found if isinstance(each, Instruction))
    assert isinstance(setp.operands[0], Pair) and setp.operands[2] == Immediate(-16)
    assert load.operands[1] == Address(Register("%a", "b64"), -8)
    assert one.operands == (Register("%v.y", "f32"), Immediate(1.0, 0x3F800000, 32))
    assert isinstance(pack.operands[1], Vector) and isinstance(both.operands[0], Vector)
    address = shared.operands[1]
    assert isinstance(address, Address) and isinstance(address.base, Symbol) and address.offset == 12


def test_directives_of_modules_and_kernels_are_kept():
    module = ptx.parse(
        """//\n.version 9.1\n.target sm_90a, texmode_independent, debug\n.address_size 64
        .file 1 "/a \\"b\\".cu", 12, 34
        .extern .shared .align 16 .b8 dyn[];
        .visible .global .attribute(.managed) .align 4 .u32 g = 3;
        .weak .func (.param .b32 r) f(.param .b32 .ptr .global .align 8 x) .noreturn ;
        .section .debug_str { info: .b8 1,2,3 \n .b32 info+4 }
        .visible .entry k(.param .u64 .ptr .const .align 4 p) .maxntid 32, 4 .minnctapersm 2 .maxnreg 40
        .reqnctapercluster 1 {
            .pragma "nounroll";
            .loc 1 7 3
            .loc 1 8 5, function_name info, inlined_at 1 7 3
            ret;
        }
        .alias other, f;"""
    )
    kernel = next(f for f in module.functions if f.entry)
    assert module.version == (9, 1) and module.target[0] == "sm_90a" and module.files == {1: '/a "b".cu'}
    assert kernel.directives["maxntid"] == (32, 4) and kernel.directives["minnctapersm"] == (2,)
    assert kernel.params[0].pointer == "const" and module.aliases == {"other": "f"}
    (ret,) = (each for each in kernel.body or [] if isinstance(each, Instruction))
    assert ret.source == (1, 8, 5)
    (made,) = lower.translate(ptx.parse(f"{HEAD}.entry k() .reqntid 8, 2 {{ ret; }}")).kernels
    assert made.max_threads == 16 and made.required == (8, 2, 1)


@pytest.mark.parametrize(
    ("target", "capability", "taken"),
    [
        ("sm_80", 90, True), ("sm_90", 90, True), ("sm_100", 90, False), ("sm_90a", 90, True), ("sm_90a", 100, False),
        ("sm_100f", 103, True), ("sm_100f", 120, False), ("sm_120a", 121, False), ("sm_75", 0, True),
        ("sm_120a", 0, True),
    ],
)  # fmt: skip
def test_ptx_for_another_device_is_refused_by_name(target, capability, taken):
    module = ptx.parse(f".version 8.8\n.target {target}\n.address_size 64\n.entry k() {{ ret; }}")
    options = lower.Options(capability=capability)
    if taken:
        assert lower.translate(module, options).kernels[0].name == "k"
        return
    with pytest.raises(lower.Unsupported, match=rf"is for {target}, the device has compute capability") as caught:
        lower.translate(module, options)
    assert caught.value.line == 2


def test_addresses_of_32_bits_are_refused():
    with pytest.raises(lower.Unsupported, match=r"line 3: \.address_size 32"):
        lower.translate(ptx.parse(".version 8.8\n.target sm_50\n.address_size 32\n.entry k() { ret; }"))


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (f"{HEAD}.entry k() {{ .reg .u32 %r<4000000000>; ret; }}", 4, "4000000000 names: at most"),
        (f"{HEAD}.entry k(.param .u32 p) {{ .local .u32 x<4000000000>; ret; }}", 4, "4000000000 names: at most"),
        (f"{HEAD}.global .u32 x = {'(' * 100000}1{')' * 100000};", 4, "nest too deep"),
        (f"{HEAD}.global .u32 x = {'-' * 100000}1;", 4, "nest too deep"),
        (".version 8.0\n.entry k() { ret; }", 2, "expected '.target'"),
        (".version 99.0\n.target sm_80\n.entry k() { ret; }", 1, ".version 99.0: versions to 9.x are known"),
    ],
)  # fmt: skip
def test_ptx_that_would_take_all_memory_or_is_of_no_known_device_is_refused(text, line, said):
    with pytest.raises(ptx.PtxError) as caught:
        ptx.parse(text)
    assert caught.value.line == line and said in str(caught.value)
