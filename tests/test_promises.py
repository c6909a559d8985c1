"""Every promise of the contract has a test or a reason why not, and no test names a promise that doesn't exist."""

from dataclasses import replace
from pathlib import Path

from hcq.testing import promises
from hcq.testing.conformance import main

TESTS = Path(__file__).parent


def test_each_promise_is_tested_or_excused():
    assert promises.missing([TESTS]) == {}


def test_the_tests_named_as_elsewhere_exist():
    for names in promises.load().elsewhere.values():
        for file, _, test in (name.partition("::") for name in names):
            assert f"def {test}(" in (TESTS / file).read_text(), f"{file} has no {test}"


def test_each_promise_that_a_test_names_exists():
    assert promises.coverage([TESTS]).strangers == {}


def test_no_promise_is_excused_that_has_a_test():
    held = promises.coverage([TESTS]).tests
    assert {id: held[id] for id in promises.load().excused if id in held} == {}


def test_the_list_names_what_has_no_test(capsys, monkeypatch):
    assert main(list=True) == 0
    assert ", 0 not" in capsys.readouterr().out  # all that hcq promises is tested
    listed = promises.load()
    further = replace(listed, texts={**listed.texts, "far.off": "it flies"}, excused={"far.off": "no wings yet"})
    monkeypatch.setattr(promises, "load", lambda: further)
    assert main(list=True) == 0
    said = capsys.readouterr().out
    assert "far.off" in said and "no wings yet" in said and "buffer.view_bounds" not in said
