"""The descriptions of the drivers that hcq ships, for the suite."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hcq.testing.driver import KERNELS, DriverUnderTest

HERE = Path(__file__).parent / "kernels"


def describe(device: str) -> DriverUnderTest:
    """The description for a device's name; see hcq.testing.driver.known."""
    from hcq.runtime.registry import Device

    name = Device.canonicalize(device)
    kind = name.partition(":")[0]
    if kind == "CLANG":
        return DriverUnderTest(name, kernels=_all_from("kernels.c"), bad_source=BAD_C, warning_source=WARNING_C)
    if kind == "LLVM":
        return DriverUnderTest(name, kernels=_all_from("kernels.ll"), bad_source=BAD_IR)
    if kind == "NULL":
        return DriverUnderTest(name, kernels={"nothing": "nothing"}, lacks=NULL_LACKS, core=name == "NULL")
    untold = _UNTOLD if kind == "PYTHON" else (*_UNTOLD, "kernels")
    return DriverUnderTest(name, lacks=dict.fromkeys(untold, "the driver's description says nothing of its kernels"))


BAD_C = "void broken(int *out) {\n  out[0] = undeclared;\n}\n"
WARNING_C = ("warned", "void warned(int *out) {\n  int unused;\n  out[0] = 'ab';\n}\n")
BAD_IR = "define void @broken(ptr %out) {\n  store i32 %undeclared, ptr %out\n  ret void\n}\n"

NULL_LACKS: Mapping[str, str] = {
    "computes": "the null device runs no code",
    "typed": "its programs take any arguments",
    "log": "its compiler takes any source",
    "kernels": "the null device runs no code",
}

# Without a description nobody knows what source the driver's compiler takes.
_UNTOLD = ("compiles", "computes", "typed", "log", "plain")


def _all_from(file: str) -> dict[str, str]:
    source = (HERE / file).read_text()
    return dict.fromkeys(KERNELS, source)
