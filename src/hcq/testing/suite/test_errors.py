"""The exceptions: what each one is besides an HCQError, what it carries, and that it travels."""

import pickle

import pytest

from hcq import errors
from hcq.testing.marks import promise

ALSO = {
    "DeviceUnavailable": RuntimeError,
    "UnknownDevice": KeyError,
    "ForkedDeviceError": RuntimeError,
    "CompileError": RuntimeError,
    "InvalidProgram": RuntimeError,
    "LaunchError": (RuntimeError, ValueError),
    "OutOfMemory": (RuntimeError, MemoryError),
    "SignalTimeout": (RuntimeError, TimeoutError),
    "DeviceLost": RuntimeError,
}
KEYWORDS = {
    "DeviceUnavailable": {"reason": "no card", "hint": "plug one in"},
    "CompileError": {"log": "line 3: no", "source": "x"},
    "OutOfMemory": {"device": "X", "asked": 8, "live": 4, "cached": 2},
    "DeviceLost": {"device": "X", "cause": "fell off", "command": "exec f"},
}


@pytest.mark.core
@promise("errors.hierarchy")
@pytest.mark.parametrize("name", ALSO)
def test_an_error_is_also_the_built_in_one(driver, name):
    kinds = ALSO[name] if isinstance(ALSO[name], tuple) else (ALSO[name],)
    error = getattr(errors, name)("why")
    for kind in (errors.HCQError, *kinds):
        assert isinstance(error, kind)
    assert "why" in str(error)


@pytest.mark.core
@promise("errors.attributes", "errors.pickle")
@pytest.mark.parametrize("name", KEYWORDS)
def test_attributes_are_keywords_and_travel(driver, name):
    error = getattr(errors, name)(**KEYWORDS[name])
    for copy in (error, pickle.loads(pickle.dumps(error))):
        assert type(copy) is getattr(errors, name)
        assert {key: getattr(copy, key) for key in KEYWORDS[name]} == KEYWORDS[name]
        assert str(copy) == str(error) != ""
