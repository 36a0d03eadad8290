"""Behavior of all searchers that use a library. Libraries that no test environment installs are
replaced by fakes.
"""

import importlib
import json
import math
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from syncline.tune.search.sample import (
    choice,
    lograndint,
    loguniform,
    qrandint,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)
from syncline.tune.search.searcher import Searcher
from syncline.tune.search.variant_generator import grid_search
from tests.tune.search.fake_search_libraries import install_if_missing

FLOATS: dict[str, Any] = {
    "x": uniform(-5, 5),
    "deep": {"lr": loguniform(1e-4, 1), "q": quniform(0, 1, 0.1)},
}
UNIFORM: dict[str, Any] = {
    "x": uniform(-5, 5),
    "deep": {
        "n": randint(1, 10),
        "steps": qrandint(0, 20, 5),
        "kind": choice(["a", None, {"size": 1}]),
    },
    "row": ["first", uniform(0, 1)],
}
EVERYTHING = {**UNIFORM, "deep": {**UNIFORM["deep"], **FLOATS["deep"], "many": lograndint(1, 100)}}


@dataclass(frozen=True)
class Case:
    """A searcher, its library, and how it is made for a short search."""

    folder: str
    name: str
    library: str
    space: dict[str, Any] = field(default_factory=lambda: EVERYTHING)
    options: dict[str, Any] = field(default_factory=dict)

    def made(self, **more: Any) -> Searcher:
        pytest.importorskip(self.library)
        searcher: Searcher = self.searcher_class()(
            **{"metric": "loss", "mode": "min", **self.options, **more}
        )
        return searcher

    def ready(self, **more: Any) -> Searcher:
        np.random.seed(3)
        searcher = self.made(**more)
        assert (
            searcher.set_search_properties(
                "loss", "min", {**self.space, "constant": 7}, num_samples=20
            )
            is True
        )
        return searcher

    def searcher_class(self) -> Any:
        return getattr(importlib.import_module(f"syncline.tune.search.{self.folder}"), self.name)


CASES = [
    Case("optuna", "OptunaSearch", "optuna", options={"seed": 1}),
    Case(
        "hyperopt",
        "HyperOptSearch",
        "hyperopt",
        options={"random_state_seed": 1, "n_initial_points": 4},
    ),
    Case(
        "bayesopt", "BayesOptSearch", "bayes_opt", space=FLOATS, options={"random_search_steps": 5}
    ),
    Case("nevergrad", "NevergradSearch", "nevergrad", options={"optimizer_kwargs": {"budget": 20}}),
    Case("zoopt", "ZOOptSearch", "zoopt", space=UNIFORM, options={"budget": 20}),
    Case("bohb", "TuneBOHB", "hpbandster", options={"seed": 1}),
    Case("ax", "AxSearch", "ax", options={"random_seed": 1}),
    Case(
        "hebo",
        "HEBOSearch",
        "hebo",
        options={"random_state_seed": 1, "max_concurrent": 1, "rand_sample": 20},
    ),
]


@pytest.fixture(params=CASES, ids=lambda case: case.folder)
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Case:
    chosen: Case = request.param
    install_if_missing(monkeypatch, chosen.library)
    return chosen


def ran(
    searcher: Searcher, numbers: Iterator[int] | range, loss: Callable[[dict[str, Any]], float]
) -> list[Any]:
    """Suggests and ends trials, one after the other."""
    configs = []
    for number in numbers:
        config = searcher.suggest(f"trial-{number}")
        configs.append(config)
        if isinstance(config, dict):
            result = {
                "loss": loss(config),
                "training_iteration": 1,
                "hyperband_info": {"budget": 1},
            }
            searcher.on_trial_result(f"trial-{number}", result)
            searcher.on_trial_complete(f"trial-{number}", result)
    return configs


def parabola(config: dict[str, Any]) -> float:
    return float((config["x"] - 1) ** 2)


def leaves(config: Any) -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, dict) and key != "kind":
            yield from leaves(value)
        else:
            yield key, value


def test_suggestions_have_the_form_and_the_types_of_the_space(case: Case) -> None:
    for config in ran(case.ready(), range(6), parabola):
        found = dict(leaves(config))
        assert found.keys() == dict(leaves(case.space)).keys()
        assert type(found["x"]) is float
        assert -5 <= found["x"] <= 5
        if "lr" in found:
            assert 1e-4 <= found["lr"] <= 1
            assert found["q"] == pytest.approx(round(found["q"] * 10) / 10, abs=1e-15)
        if "n" in found:
            assert type(found["n"]) is int
            assert 1 <= found["n"] <= 9
            assert found["steps"] in range(0, 21, 5)
            assert found["kind"] in ("a", None, {"size": 1})
            assert found["row"][0] == "first"
            assert 0 <= found["row"][1] <= 1
        json.dumps(config)


def test_state_gives_the_same_suggestions_again(case: Case, tmp_path: Any) -> None:
    searcher = case.ready()
    ran(searcher, range(6), parabola)
    searcher.suggest("running")
    searcher.save(str(tmp_path / "saved"))
    state = searcher.get_state()

    def continued(one: Searcher) -> list[Any]:
        one.on_trial_complete("running", {"loss": 2.0})
        return ran(one, range(6, 8), parabola)

    expected = continued(searcher)
    from_state, from_file = case.ready(), case.ready()
    from_state.set_state(state)
    from_file.restore(str(tmp_path / "saved"))
    assert continued(from_state) == expected
    assert continued(from_file) == expected


def test_a_state_that_cannot_be_pickled_is_said_to_be_none(case: Case) -> None:
    searcher = case.ready()
    searcher._unpicklable = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(NotImplementedError, match=f"{case.name} cannot be saved"):
        searcher.get_state()


def test_failed_and_nan_trials_do_not_end_the_search(case: Case) -> None:
    searcher = case.ready()
    for number in range(9):
        config = searcher.suggest(str(number))
        assert isinstance(config, dict)
        result = {
            "loss": [math.nan, math.inf, parabola(config)][number % 3],
            "training_iteration": 1,
            "hyperband_info": {"budget": 1},
        }
        searcher.on_trial_result(str(number), result)
        searcher.on_trial_complete(
            str(number), None if number % 4 == 1 else result, error=number % 4 == 1
        )
    assert isinstance(searcher.suggest("last"), dict)


def test_a_second_end_and_unknown_trials_are_ignored(case: Case) -> None:
    searcher = case.ready()
    searcher.suggest("one")
    for _ in range(2):
        searcher.on_trial_complete("one", {"loss": 1.0})
    searcher.on_trial_result("never suggested", {"loss": 1.0, "training_iteration": 1})
    searcher.on_trial_complete("never suggested", {"loss": 1.0})
    assert isinstance(searcher.suggest("two"), dict)


def test_given_points_come_first(case: Case) -> None:
    def point(x: float) -> dict[str, Any]:
        values = {"n": 2, "steps": 10, "kind": {"size": 1}, "lr": 0.25, "q": 0.5, "many": 17}
        deep = {key: values[key] for key in case.space["deep"]}
        return {"x": x, "deep": deep, **({"row": ["first", 0.5]} if "row" in case.space else {})}

    points = [point(1.5), point(-2.5)]
    for config, expected in zip(
        ran(case.ready(points_to_evaluate=points), range(2), parabola), points, strict=True
    ):
        found, wanted = dict(leaves(config)), dict(leaves(expected))
        row, wanted_row = found.pop("row", []), wanted.pop("row", [])
        kind, wanted_kind = found.pop("kind", None), wanted.pop("kind", None)
        assert found == pytest.approx(wanted)
        assert (kind, row) == (wanted_kind, wanted_row)


def test_a_point_that_names_what_is_not_there_is_refused(case: Case) -> None:
    with pytest.raises(ValueError, match="'learning_rate'"):
        case.ready(points_to_evaluate=[{"learning_rate": 1.0}]).suggest("one")


def test_what_cannot_be_searched_is_named(case: Case) -> None:
    for key, value, remedy in [
        ("grid", grid_search([1, 2]), "tune.choice"),
        ("computed", sample_from(lambda: 3), "search_alg"),
        ("nested", choice([uniform(0, 1), 2]), "HyperOptSearch"),
        ("bell", randn(), "another searcher"),
    ]:
        if case.folder == "hyperopt" and key in ("nested", "bell"):
            continue
        with pytest.raises(ValueError, match=f"'deep/{key}.*{remedy}"):
            case.made().set_search_properties(
                "loss", "min", {"x": uniform(0, 1), "deep": {key: value}}
            )


def test_constants_alone_are_nothing_to_search(case: Case) -> None:
    with pytest.raises(ValueError, match="has no parameters"):
        case.made().set_search_properties("loss", "min", {"x": 1})


def test_metric_and_mode_are_not_given_twice_differently(case: Case) -> None:
    assert case.made().set_search_properties("accuracy", "min", case.space) is False
    assert case.made().set_search_properties("loss", "max", case.space) is False
    later = case.made(metric=None, mode=None)
    with pytest.raises(RuntimeError, match="search space"):
        later.suggest("too early")
    assert later.set_search_properties("loss", "max", case.space) is True
    assert (later.metric, later.mode) == ("loss", "max")


def test_a_space_of_the_searchers_own_is_kept(case: Case) -> None:
    keyword = {"zoopt": "dim_dict"}.get(case.folder, "space")
    searcher = case.made(**{keyword: case.space})
    assert searcher.set_search_properties(None, None, {"y": uniform(0, 1)}) is False
    config = searcher.suggest("one")
    assert isinstance(config, dict)
    assert "x" in config


def test_the_programs_random_states_stay(case: Case) -> None:
    searcher = case.ready()
    before = np.random.get_state()[1].tolist()
    ran(searcher, range(6), parabola)
    if case.folder != "nevergrad":  # which seeds itself from there at its first draw
        assert np.random.get_state()[1].tolist() == before


@pytest.mark.parametrize(
    ("folder", "name", "module", "package"),
    [
        ("optuna", "OptunaSearch", "optuna", "optuna"),
        ("hyperopt", "HyperOptSearch", "hyperopt", "hyperopt"),
        ("bayesopt", "BayesOptSearch", "bayes_opt", "bayesian-optimization"),
        ("nevergrad", "NevergradSearch", "nevergrad", "nevergrad"),
        ("zoopt", "ZOOptSearch", "zoopt", "zoopt"),
        ("bohb", "TuneBOHB", "ConfigSpace", "ConfigSpace"),
        ("ax", "AxSearch", "ax.service.ax_client", "ax-platform"),
        ("hebo", "HEBOSearch", "hebo.optimizers.hebo", "HEBO"),
    ],
)
def test_a_missing_library_is_named(
    folder: str, name: str, module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in (module.split(".")[0], module):
        monkeypatch.setitem(sys.modules, part, None)
    with pytest.raises(ImportError, match=f"{name} needs {package}.*pip install {package}"):
        getattr(importlib.import_module(f"syncline.tune.search.{folder}"), name)()


def test_importing_the_searchers_imports_no_library() -> None:
    imports = "; ".join(f"import syncline.tune.search.{case.folder}" for case in CASES)
    libraries = [case.library for case in CASES]
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; {imports}; print([name for name in {libraries} if name in sys.modules])",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "[]"
