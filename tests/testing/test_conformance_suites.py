"""The conformance suites: completeness, and skips by traits."""

from __future__ import annotations

import inspect
from typing import Any

from syncline.testing import conformance


def has_skip_mark(value: Any) -> bool:
    return inspect.isclass(value) and any(
        mark.name == "skip" for mark in getattr(value, "pytestmark", ())
    )


def test_every_suite_is_listed_once() -> None:
    def below(cls: type) -> set[type]:
        return {cls, *(deeper for sub in cls.__subclasses__() for deeper in below(sub))}

    defined = {
        suite
        for suite in below(conformance.Suite) - {conformance.Suite}
        if suite.__module__ != "syncline.testing.conformance.suite"
    }
    assert set(conformance.SUITES) == defined
    assert len(conformance.SUITES) == len({suite.__name__ for suite in conformance.SUITES})


def test_engine_without_processes_skips_suites_that_need_them() -> None:
    traits = conformance.EngineTraits(processes=False, parallel=True)
    names = conformance.tests_for_engine({}, traits=traits)
    skipped = {name for name, value in names.items() if has_skip_mark(value)}
    assert skipped == {
        f"Test{suite.__name__}" for suite in conformance.SUITES if "processes" in suite.needs
    }


def test_engine_with_everything_skips_nothing() -> None:
    names = conformance.tests_for_engine(
        {}, traits=conformance.EngineTraits(processes=True, parallel=True)
    )
    assert len(names) == len(conformance.SUITES) + 1
    assert not any(has_skip_mark(value) for value in names.values())


def test_every_suite_has_tests() -> None:
    for suite in conformance.SUITES:
        assert [name for name in dir(suite) if name.startswith("test_")], suite
