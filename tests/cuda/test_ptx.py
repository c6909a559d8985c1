"""What modules of PTX say of their kernels."""

from hcq.drivers.cuda import ptx

MODULE = """
// .entry commented(.param .u64 a)
.version 9.0
.target sm_80
.address_size 64
.visible .entry add(
	.param .u64 .ptr .global .align 1 add_param_0,
	.param .u64 add_param_1,
	.param .u32 add_param_2, .param .s16 add_param_3,
	.param .f64 add_param_4,
	.param .align 2 .b8 add_param_5[2],
	.param .align 4 .b8 add_param_6[12]
)
.maxntid 256, 1, 1
.reqntid 32, 2
{
	ret;
}
.entry none() { ret; }
.visible .entry bare
{ ret; }
.visible .func (.param .b32 r) helper(.param .b32 x) { ret; }
"""


def test_parameters_are_read_with_their_sizes():
    found = ptx.entries(MODULE)
    assert [each.kind for each in found["add"].parameters] == [
        "ptr",
        "bits64",
        "bits32",
        "i16",
        "f64",
        "bytes2",
        "bytes12",
    ]
    assert [each.size for each in found["add"].parameters] == [8, 8, 4, 2, 8, 2, 12]
    assert found["add"].items == (32, 2, 1)


def test_names_are_read_but_for_those_that_a_compiler_makes_up():
    found = ptx.entries(
        ".version 8.0\n.entry f(.param .u64 .ptr a, .param .align 4 .b8 f_param_1[8], .param .f32 z$) {}"
    )
    assert [each.name for each in found["f"].parameters] == ["a", "", "z$"]


def test_a_module_that_marks_no_pointer_may_have_them_in_any_64_bits():
    found = ptx.entries(".version 8.0\n.entry f(.param .u64 a, .param .b64 b, .param .s64 c) { ret; }")
    assert [each.kind for each in found["f"].parameters] == ["word", "word", "i64"]


def test_kernels_without_parameters_are_found_and_functions_are_none():
    found = ptx.entries(MODULE)
    assert list(found) == ["add", "none", "bare"]
    assert found["none"].parameters == found["bare"].parameters == ()
    assert found["none"].items == (0, 0, 0)


def test_ptx_is_told_from_cuda_c():
    assert ptx.is_ptx(MODULE)
    assert not ptx.is_ptx('// .version 9\nextern "C" __global__ void f() {}')
