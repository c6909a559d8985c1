"""`hcq conformance`: runs the suite on one device, or lists the promises. The arguments are the command line's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hcq.testing import promises


def main(
    device: str | None = None,
    list: bool = False,
    driver: str | None = None,
    arguments: Sequence[str] = (),
    quick: bool = False,
) -> int:
    """Runs the suite on `device` and returns pytest's exit status; with `list` prints the promises without a test.

    driver: `module:attribute` of a DriverUnderTest, for a driver that hcq does not ship (it is described best by its
    own kernels); without it an unknown device is taken to have every capability and no kernels. quick: leaves out what
    takes more than a second. arguments: further ones for pytest. Blocks; prints; needs pytest and hypothesis.
    """
    if list:
        return _list()
    try:
        import hypothesis  # noqa: F401
        import pytest
    except ImportError as missing:
        print(f"the conformance suite needs {missing.name}: pip install 'hcq[test]'")
        return 2
    here = Path(__file__).parent
    # Whoever runs this in a project of his own must not have that project's pytest settings applied.
    command = ["-p", "hcq.testing", "-p", "no:cacheprovider", "-q", "-c", str(here / "pytest.ini"), str(here / "suite")]
    if device is None and driver is None:
        print("name a device (--device) or a driver's description (--driver module:attribute)")
        return 2
    command += [f"--hcq-device={device}"] if device else []
    command += [f"--hcq-driver={driver}"] if driver else []
    command += ["-m", "not slow"] if quick else []
    return int(pytest.main([*command, *arguments]))


def _list() -> int:
    listed = promises.load()
    held = promises.coverage()
    untested = {id: text for id, text in listed.texts.items() if id not in held.tests}
    width = max(len(id) for id in listed.texts)
    for id, text in untested.items():
        print(f"{id:{width}}  {text}  [{listed.excused.get(id, 'no test')}]")
    count = len(listed.texts)
    print(f"{count} promises: {count - len(untested)} tested here, {len(untested)} not")
    return 0
