"""What mangled names say of kernels' parameters."""

import pytest

from hcq.drivers.cuda import mangling


@pytest.mark.parametrize(
    ("symbol", "plain", "kinds"),
    [
        ("_Z4nonev", "none", ()),
        ("_Z7mangledPfi", "mangled", ("ptr", "i32")),
        (
            "_Z5typesPKfbahstijlmxydDF16b6__half",
            "types",
            (
                "const",
                "boolean",
                "i8",
                "u8",
                "i16",
                "u16",
                "i32",
                "u32",
                "i64",
                "u64",
                "i64",
                "u64",
                "f64",
                "bf16",
                "f16",
            ),
        ),
        ("_Z6secondPfS_S_", "second", ("ptr", "ptr", "ptr")),
        ("_Z5constPKfS0_", "const", ("const", "const")),
        (
            "_ZN2ns1qEPNS_1VEPKS0_NS_1EEfPNS_1WIiEES7_S1_",
            "q",
            ("ptr", "const", "", "f32", "ptr", "ptr", "ptr"),
        ),
        ("_Z4callPFiiEf", "call", ("ptr", "f32")),
    ],
)
def test_parameters_are_told_by_a_mangled_name(symbol, plain, kinds):
    assert mangling.read(symbol) == (plain, kinds)


@pytest.mark.parametrize("symbol", ["add", "_Z2ttIfEvPT_", "_Z9cutoff", "_Z", "_Z3addQ"])
def test_names_of_other_forms_say_nothing(symbol):
    assert mangling.read(symbol) is None


def test_the_type_of_a_function_is_told_by_a_template():
    assert mangling.read_signature("_Z16hcq_signature_ofIFvPfPKfiEEvv") == ("ptr", "const", "i32")
    assert mangling.read_signature("_Z16hcq_signature_ofIFvPfPKfS2_fxEEvv") == ("ptr", "const", "const", "f32", "i64")
    assert mangling.read_signature("_Z16hcq_signature_ofIFvPfS0_EEvv") == ("ptr", "ptr")
    assert mangling.read_signature("_Z16hcq_signature_ofIFvvEEvv") == ()
    assert mangling.read_signature("_Z16hcq_signature_ofIiEvv") is None
