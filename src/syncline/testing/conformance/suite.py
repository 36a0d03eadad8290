"""Base class of the suites, and their use in a test module.

    globals().update(conformance.tests_for({"local_mode": True},
    traits=conformance.EngineTraits(processes=False, parallel=False)))

defines one class `Test...` per suite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import pytest

import syncline

Trait = Literal["processes", "parallel"]
InitArguments = Mapping[str, Any]
EngineOptions = InitArguments | Callable[[InitArguments], InitArguments]
"""Arguments of `init` in addition to a suite's own, or a function from the suite's to all.

Such a function may start a cluster.
"""


@dataclass(frozen=True, kw_only=True)
class EngineTraits:
    """Capabilities of an engine; suites that need more are skipped."""

    processes: bool
    """Tasks and actors run in their own processes."""
    parallel: bool
    """Tasks run concurrently with the program, so that they can be awaited and cancelled."""
    differences: Mapping[str, str] = field(default_factory=dict)
    """Reason by "Suite.test_name" for tests that the engine cannot pass; they are skipped."""


class Suite:
    """Tests of one topic, which share one engine."""

    needs: ClassVar[tuple[Trait, ...]] = ()
    """Traits that the suite requires."""
    init_options: ClassVar[InitArguments] = {"num_cpus": 4}
    """Arguments of `init`."""


def tests_for(
    engine_options: EngineOptions, *, traits: EngineTraits, suites: Iterable[type[Suite]]
) -> dict[str, Any]:
    """Return test classes by name, and the fixture `conforming_engine` that starts the engine."""
    names = {"conforming_engine": _engine_fixture(engine_options)}
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
    """Return skipping replacements of the tests in which the engine differs.

    Raises AttributeError for an unknown test.
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
