"""Any text at all as a device name: one spelling each, and an answer or a typed refusal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcq import Device
from hcq.errors import UnknownDevice

names = st.text(max_size=20) | st.from_regex(r"\A(cpu|clang|Gpu|disk|opencl|npy)(:[0-9a-z/:]{0,6})?\Z")


@given(names)
def test_canonical_names_stay_as_they_are(name):
    canonical = Device.canonicalize(name)
    head = canonical.partition(":")[0]
    assert head == head.upper()
    assert Device.canonicalize(name) == canonical
    if not canonical.endswith(":0"):
        assert Device.canonicalize(canonical) == canonical


@given(st.text(max_size=12).map(lambda text: "ZZ" + text))
def test_an_unknown_name_is_refused_with_the_known_ones(name):
    with pytest.raises(UnknownDevice, match="CLANG"):
        Device[name]
