"""What the suites have in common: which engine they run on, and how a test module takes them in.

    globals().update(conformance.tests_for({"local_mode": True},
    traits=conformance.EngineTraits(processes=False, parallel=False)))

gives a test module one class `Test...` for every suite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import pytest

import syncline

Trait = Literal["processes", "parallel"]
EngineOptions = Mapping[str, Any] | Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Arguments of `init` beside a suite's own; or a function that makes all of them out of the
suite's, such as one that starts a cluster.
"""


@dataclass(frozen=True, kw_only=True)
class EngineTraits:
    """What an engine can do; suites that need more are skipped."""

    processes: bool
    """Tasks and actors run in processes of their own, which may crash and whose state is theirs."""
    parallel: bool
    """Tasks run beside the program, so that one can wait for, or cancel, what has not ended."""
    differences: Mapping[str, str] = field(default_factory=dict)
    """Tests that the engine fails by its nature, as "Suite.test_name", and why; they are
    skipped.
    """


class Suite:
    """One topic. Every test of a suite runs on one engine, which is started for the suite."""

    needs: ClassVar[tuple[Trait, ...]] = ()
    """Traits without which the suite means nothing."""
    init_options: ClassVar[Mapping[str, Any]] = {"num_cpus": 4}
    """Arguments of `init`, over those of the engine's test module."""


def tests_for(
    engine_options: EngineOptions, *, traits: EngineTraits, suites: Iterable[type[Suite]]
) -> dict[str, Any]:
    """Test classes by name, and the fixture `conforming_engine` that starts the engine with
    `engine_options`.
    """
    names: dict[str, Any] = {"conforming_engine": _engine_fixture(engine_options)}
    for suite in suites:
        missing = [need for need in suite.needs if not getattr(traits, need)]
        marks = [pytest.mark.usefixtures("conforming_engine")]
        if missing:
            marks.append(pytest.mark.skip(reason=f"this engine lacks: {', '.join(missing)}"))
        body = {
            "pytestmark": marks,
            "__doc__": suite.__doc__,
            **_skipped(suite, traits.differences),
        }
        names[f"Test{suite.__name__}"] = type(f"Test{suite.__name__}", (suite,), body)
    return names


def _skipped(suite: type[Suite], differences: Mapping[str, str]) -> dict[str, Callable[..., None]]:
    """The tests of `suite` in which the engine differs, skipped. AttributeError for one that the
    suite does not have.
    """
    skipped: dict[str, Callable[..., None]] = {}
    for full_name, reason in differences.items():
        topic, _, name = full_name.partition(".")
        if topic == suite.__name__:
            getattr(suite, name)
            skipped[name] = _skipping(reason)
    return skipped


def _skipping(reason: str) -> Callable[..., None]:
    def test(self: Suite) -> None:
        pytest.skip(reason)

    return test


def _engine_fixture(engine_options: EngineOptions) -> Callable[..., Iterator[None]]:
    @pytest.fixture(scope="class")
    def conforming_engine(request: pytest.FixtureRequest) -> Iterator[None]:
        own = request.cls.init_options
        syncline.init(
            **(engine_options(own) if callable(engine_options) else {**own, **engine_options})
        )
        yield
        syncline.shutdown()

    return conforming_engine
