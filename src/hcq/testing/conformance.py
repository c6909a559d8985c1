"""`hcq conformance`: runs the suite on one device, or lists the promises. The arguments are the command line's."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from hcq.errors import DeviceUnavailable, UnknownDevice
from hcq.runtime.registry import Device
from hcq.testing import promises
from hcq.testing.driver import described


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
    takes more than a second. arguments: further ones for pytest. Returns 2 where there is nothing to run it on, before
    any test. Blocks; prints; needs pytest and hypothesis.
    """
    if list:
        return _list()
    if wrong := _what_is_wrong(device, driver):
        print(f"hcq: {wrong}", file=sys.stderr)
        return 2
    try:
        import hypothesis  # noqa: F401
        import pytest
    except ImportError as missing:
        hint = "pip install 'hcq[test]', or in a checkout: scripts/setup-venv test"
        print(f"hcq: the conformance suite needs {missing.name}: {hint}", file=sys.stderr)
        return 2
    here = Path(__file__).parent
    # Whoever runs this in a project of his own must not have that project's pytest settings applied.
    command = ["-p", "hcq.testing", "-p", "no:cacheprovider", "-q", "-c", str(here / "pytest.ini"), str(here / "suite")]
    command += [f"--hcq-device={device}"] if device else []
    command += [f"--hcq-driver={driver}"] if driver else []
    command += ["-m", "not slow"] if quick else []
    return int(pytest.main([*command, *arguments]))


def _what_is_wrong(device: str | None, driver: str | None) -> str | None:
    """Why there is nothing to run the suite on, in one line; None where it can begin.

    Opens the device, since one that can't open would only skip every test, and closes it where it was not open.
    """
    if device is None and driver is None:
        return "name a device (--device) or a driver's description (--driver module:attribute)"
    if driver is not None:
        try:
            described(driver)
        except (ImportError, ValueError) as error:
            return str(error)
        return None
    try:
        name = Device.canonicalize(device)
        was_open = name in Device.opened
        opened = Device[name]
    except (UnknownDevice, DeviceUnavailable) as error:
        return str(error)
    runs_nothing = opened.runtime is None and not hasattr(opened, "hw_compute_queue_t")
    if not was_open:
        opened.close()
    return f"{name} has no queues or kernels to conform: it only holds data" if runs_nothing else None


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
