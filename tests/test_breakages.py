"""Whether each test of the suite that runs on the null device has a breakage that it notices (see test_mutants)."""

from hcq.testing import breakages, known, promises, suite_tests

driver = known("NULL")
tests = suite_tests()

# Why a test that runs on the null device has no breakage there.
WITHOUT = {
    "test_a_refused_source_tells_the_log": "the null compiler takes any source",
    "test_the_buffer_protocol_is_zero_copy": "a native type's buffer protocol can't be replaced from Python",
    "test_two_gibibytes_are_whole": "it takes long; the same copies are shown to fail at other sizes",
    "test_the_package_is_marked_as_typed": "the file is there or it isn't",
}


def test_breakages_name_promises_and_tests_that_exist():
    texts = promises.load().texts
    for breakage in breakages.all_of_them().values():
        assert breakage.promise in texts, f"{breakage.name} breaks {breakage.promise}, which is no promise"
        for test in breakage.tests:
            assert test.partition("[")[0] in tests, f"{breakage.name} is to be noticed by {test}, which is no test"


def _on_the_null_device(test):
    needed = {tag for mark in getattr(test, "pytestmark", ()) if mark.name == "needs" for tag in mark.args}
    return not needed & driver.lacks.keys()


def test_each_test_that_runs_on_the_null_device_is_shown_to_fail_there():
    on_null = {name for name, test in tests.items() if name.startswith("test_") and _on_the_null_device(test)}
    shown = {name for name in on_null if breakages.of_test(name)}
    assert on_null - shown == WITHOUT.keys(), "these have no breakage, and no reason for that (or the other way round)"
