"""The pytest side of the suite: options, marks, skipping by capability, the fixtures, and running against breakages.

A test of the suite is any with a `promise` mark that comes from hcq.testing.suite; others are left alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import pytest

import hcq
from hcq.errors import DeviceUnavailable
from hcq.testing import breakages, promises, standing
from hcq.testing.driver import KERNELS, TAGS, DriverUnderTest, known
from hcq.testing.driver import described as find_described

pytest.register_assert_rewrite("hcq.testing.suite")
DRIVER = pytest.StashKey[DriverUnderTest]()
RESULTS = pytest.StashKey[dict[str, set[str]]]()


# -- hooks ------------------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("hcq", "hcq conformance")
    group.addoption("--hcq-device", help="the device that the suite runs on")
    group.addoption("--hcq-driver", help="module:attribute of the DriverUnderTest that the suite runs on")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "promise(*ids): the promises of the contract that the test holds")
    config.addinivalue_line("markers", "needs(*tags): what a device must be able to do for the test")
    config.addinivalue_line("markers", "core: a test of hcq itself that does not depend on the driver")
    config.addinivalue_line("markers", "slow: takes more than a second")
    config.addinivalue_line("markers", "gibibytes: needs several GiB of memory: not to be run beside another such test")
    if not config.pluginmanager.hasplugin("timeout"):
        config.addinivalue_line("markers", "timeout(seconds): ends the test, where pytest-timeout is installed")
    config.stash[RESULTS] = {}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    of_suite = metafunc.function.__module__.startswith("hcq.testing.suite.")
    if of_suite and getattr(metafunc.module, "mutants", False):
        names = breakages.of_test(metafunc.function.__name__)
        metafunc.parametrize("breakage", names, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items[:] = _once_a_breakage(items)
    for item in items:
        if not _of_suite(item):
            continue
        driver = _driver_of(item)
        item.stash[DRIVER] = driver
        name, ids = _function_name(item), _promises_of(item)
        needed = {tag for mark in item.iter_markers("needs") for tag in mark.args}
        if unknown := needed - TAGS.keys():
            raise pytest.UsageError(f"{name} needs {', '.join(unknown)}: no such tag")
        reasons = [f"{driver.device} lacks {tag!r}: {driver.lacks[tag]}" for tag in needed & driver.lacks.keys()]
        reasons += [driver.exclusions[key] for key in (name, *ids) if key in driver.exclusions]
        if item.get_closest_marker("core") and not driver.core:
            reasons.append("a test of hcq itself; the NULL device runs those")
        if reasons:
            item.add_marker(pytest.mark.skip(reason=reasons[0]))
        elif name in driver.expected_failures and not getattr(_module_of(item), "mutants", False):
            item.add_marker(pytest.mark.xfail(strict=True, reason=driver.expected_failures[name]))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome: Any = yield
    report = outcome.get_result()
    if DRIVER not in item.stash:
        return
    if getattr(_module_of(item), "mutants", False):
        if report.when == "call" and not report.skipped:
            _invert(item, report)
        elif report.when == "teardown" and report.failed:  # what is broken may be the end
            report.outcome, report.longrepr = "passed", None
        return
    if report.when == "call" or report.outcome != "passed":
        verdict = "excluded" if report.skipped else report.outcome
        for id in _promises_of(item):
            item.config.stash[RESULTS].setdefault(id, set()).add(verdict)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    results = config.stash[RESULTS]
    if not results or not (config.getoption("--hcq-device") or config.getoption("--hcq-driver")):
        return
    failed = sorted(id for id, verdicts in results.items() if "failed" in verdicts)
    held = [id for id, verdicts in results.items() if "passed" in verdicts and "failed" not in verdicts]
    terminalreporter.section("promises of the contract")
    terminalreporter.write_line(
        f"{len(held)} hold, {len(failed)} don't, {len(results) - len(held) - len(failed)} don't apply"
    )
    texts = promises.load().texts
    for id in failed:
        terminalreporter.write_line(f"  broken: {id}: {texts[id]}")


# -- fixtures ---------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def breakage(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """In a module with `mutants = True`: the deliberate breakage that the test must notice. Else nothing."""
    name = getattr(request, "param", None)
    if name is None:
        yield None
        return
    with breakages.applied(name, request.node.stash[DRIVER].device):
        yield name


@pytest.fixture
def driver(request: pytest.FixtureRequest, breakage: str | None, monkeypatch: pytest.MonkeyPatch) -> DriverUnderTest:
    """The description of the driver under test."""
    from hcq.testing.suite import tools

    described: DriverUnderTest = request.node.stash[DRIVER]
    tools.salt = zlib.crc32(request.node.nodeid.encode())
    # What a breakage makes impossible nobody shall wait for; else machines may be slow.
    monkeypatch.setenv("HCQ_TIMEOUT_MS", "500" if breakage else "20000")
    if described.factory is not None and described.device not in hcq.Device._devices:
        hcq.Device.register(described.device, described.factory)
    return described


@pytest.fixture
def dev(driver: DriverUnderTest) -> Iterator[Any]:
    """The opened device. Tests share it while it stays good."""
    device = _open(driver.device)
    yield device
    standing.settle(device)


@pytest.fixture
def peer(driver: DriverUnderTest) -> Iterator[Any]:
    """A second device of the same driver."""
    device = _open(driver.peer(1))
    yield device
    standing.settle(device)


@pytest.fixture
def fresh(driver: DriverUnderTest) -> Iterator[Any]:
    """The device, opened for this test alone and closed after it, for tests that count or break."""
    hcq.Device.close(driver.device)
    device = _open(driver.device)
    yield device
    standing.discard(device)


@pytest.fixture
def fresh_peer(driver: DriverUnderTest) -> Iterator[Any]:
    """A second device, opened for this test alone."""
    hcq.Device.close(driver.peer(1))
    device = _open(driver.peer(1))
    yield device
    standing.discard(device)


class Kernels:
    """The driver's kernels, compiled for one device when first asked for: `kernels.fill` is a program."""

    def __init__(self, driver: DriverUnderTest, device: Any) -> None:
        self._driver, self._device, self._programs = driver, device, dict[str, Any]()

    def on(self, device: Any) -> Kernels:
        """The same kernels for another device of the driver."""
        return Kernels(self._driver, device)

    def source(self, name: str) -> str:
        if name not in KERNELS:
            raise AttributeError(name)
        if name not in self._driver.kernels:
            pytest.skip(f"{self._driver.device} brings no kernel {name!r}")
        return self._driver.kernels[name]

    def library(self, name: str) -> bytes:
        library: bytes = self._device.compiler.compile_cached(self.source(name))
        return library

    def __getattr__(self, name: str) -> Any:
        if name not in self._programs:
            self._programs[name] = self._device.runtime(name, self.library(name))
        return self._programs[name]


@pytest.fixture
def kernels(driver: DriverUnderTest, dev: Any) -> Kernels:
    """The driver's kernels for `dev`."""
    return Kernels(driver, dev)


@pytest.fixture
def fresh_kernels(driver: DriverUnderTest, fresh: Any) -> Kernels:
    """The driver's kernels for `fresh`."""
    return Kernels(driver, fresh)


# -- helpers ----------------------------------------------------------------------------------------------------------


def _open(name: str) -> Any:
    try:
        return hcq.Device[name]
    except DeviceUnavailable as why:
        pytest.skip(f"{name} is not available here: {why}")


def _once_a_breakage(items: list[pytest.Item]) -> list[pytest.Item]:
    """Of a test with several parameter sets, the one that a breakage names, or the first: noticing it once will do."""
    taken: set[tuple[str, str]] = set()
    kept = []
    for item in items:
        if getattr(_module_of(item), "mutants", False) and _of_suite(item):
            test, given = _function_name(item), getattr(item, "callspec", None)
            if given is None or given.params.get("breakage") is None:
                continue  # nothing is known that it must notice
            name = given.params["breakage"]
            wanted = breakages.all_of_them()[name].covers(test)
            if (test, name) in taken or wanted is None or wanted not in given.id.replace(name, ""):
                continue
            taken.add((test, name))
        kept.append(item)
    return kept


def _of_suite(item: pytest.Item) -> bool:
    function = getattr(item, "function", None)
    return (
        function is not None
        and function.__module__.startswith("hcq.testing.suite.")
        and any(item.iter_markers("promise"))
    )


def _module_of(item: pytest.Item) -> Any:
    return getattr(item, "module", None)


def _function_name(item: pytest.Item) -> str:
    return getattr(item, "originalname", None) or item.name


def _promises_of(item: pytest.Item) -> list[str]:
    return [id for mark in item.iter_markers("promise") for id in mark.args]


def _driver_of(item: pytest.Item) -> DriverUnderTest:
    described = getattr(_module_of(item), "driver", None)
    if isinstance(described, DriverUnderTest):
        return described
    if path := item.config.getoption("--hcq-driver"):
        try:
            return find_described(path)
        except (ImportError, ValueError) as error:
            raise pytest.UsageError(str(error)) from error
    if device := item.config.getoption("--hcq-device"):
        return known(device)
    raise pytest.UsageError("the conformance suite needs --hcq-device=NAME or --hcq-driver=module:attribute")


def _invert(item: pytest.Item, report: pytest.TestReport) -> None:
    """Against a breakage a test must fail."""
    if report.outcome == "failed":
        report.outcome, report.longrepr = "passed", None
    else:
        report.outcome = "failed"
        report.longrepr = f"{_function_name(item)} does not notice that its promise is broken: {item.name}"
