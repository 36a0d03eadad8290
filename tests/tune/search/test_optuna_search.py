"""OptunaSearch: the same suggestions as plain Optuna, all its samplers, functions as spaces,
several objectives, storages.
"""

import logging
import math
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import (
    CmaEsSampler,
    GPSampler,
    NSGAIISampler,
    QMCSampler,
    RandomSampler,
    TPESampler,
)
from optuna.trial import TrialState

from syncline.tune.search.optuna import OptunaSearch
from syncline.tune.search.sample import choice, loguniform, quniform, randint, uniform

SPACE = {
    "x": uniform(-5, 5),
    "deep": {"lr": loguniform(1e-4, 1), "n": randint(1, 10)},
    "kind": choice(["a", "b"]),
}
DISTRIBUTIONS = {
    "x": FloatDistribution(-5, 5),
    "deep/lr": FloatDistribution(1e-4, 1, log=True),
    "deep/n": IntDistribution(1, 9),
    "kind": CategoricalDistribution(["a", "b"]),
}


def ready(space: Any = SPACE, **options: Any) -> OptunaSearch:
    searcher = OptunaSearch(**{"metric": "loss", "mode": "min", "seed": 5, **options})
    assert searcher.set_search_properties(None, None, space)
    return searcher


def suggested(searcher: OptunaSearch, trial_id: str) -> Any:
    config: Any = searcher.suggest(trial_id)
    return config


def study_of(searcher: OptunaSearch) -> optuna.Study:
    study: optuna.Study = searcher._optimizer
    return study


def test_suggestions_are_those_of_plain_optuna_under_the_same_seed() -> None:
    searcher, study = ready(), optuna.create_study(sampler=TPESampler(seed=5))
    for number in range(40):
        config = suggested(searcher, str(number))
        trial = study.ask(DISTRIBUTIONS)
        deep = config["deep"]
        assert (config["x"], deep["lr"], deep["n"], config["kind"]) == tuple(trial.params.values())
        loss = (config["x"] - 2) ** 2 + deep["n"]
        searcher.on_trial_result(str(number), {"loss": loss + 1, "training_iteration": 1})
        searcher.on_trial_complete(str(number), {"loss": loss})
        study.tell(trial, loss)


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize(
    "sampler",
    [
        lambda: TPESampler(seed=1, n_startup_trials=3),
        lambda: RandomSampler(seed=1),
        lambda: QMCSampler(seed=1, warn_asynchronous_seeding=False),
        lambda: CmaEsSampler(seed=1, n_startup_trials=3, warn_independent_sampling=False),
        lambda: GPSampler(seed=1, n_startup_trials=3),
        lambda: NSGAIISampler(seed=1, population_size=4),
    ],
    ids=["tpe", "random", "qmc", "cmaes", "gp", "nsgaii"],
)
def test_every_sampler_goes_on_alike_after_a_restore(sampler: Any) -> None:
    searcher = ready({"x": uniform(-5, 5), "y": uniform(-5, 5)}, sampler=sampler(), seed=None)

    def ran(one: OptunaSearch, numbers: range) -> list[Any]:
        configs = []
        for number in numbers:
            configs.append(suggested(one, str(number)))
            one.on_trial_complete(str(number), {"loss": configs[-1]["x"] ** 2 + configs[-1]["y"]})
        return configs

    ran(searcher, range(4))
    restored = ready({"x": uniform(-5, 5), "y": uniform(-5, 5)})
    restored.set_state(searcher.get_state())
    assert ran(restored, range(4, 6)) == ran(searcher, range(4, 6))


def test_a_function_may_ask_for_one_value_because_of_another() -> None:
    def space(trial: optuna.Trial) -> dict[str, Any]:
        if trial.suggest_categorical("kind", ["sgd", "adam"]) == "sgd":
            trial.suggest_float("sgd/momentum", 0, 1)
        return {"constant": 3}

    searcher = OptunaSearch(space, metric="loss", mode="min", seed=1)
    for number in range(10):
        config = suggested(searcher, str(number))
        searcher.on_trial_complete(str(number), {"loss": 1.0})
        expected = {"kind", "constant"} | ({"sgd"} if config["kind"] == "sgd" else set())
        assert config.keys() == expected
    assert isinstance(
        suggested(
            OptunaSearch(
                lambda trial: trial.suggest_int("n", 1, 2) and None, metric="l", mode="min"
            ),
            "1",
        )["n"],
        int,
    )


def test_a_function_that_returns_something_else_is_refused() -> None:
    with pytest.raises(TypeError, match="must return None"):
        OptunaSearch(lambda trial: 3, metric="loss", mode="min").suggest("one")


def test_distributions_are_taken_nested_too() -> None:
    searcher = OptunaSearch(
        {"deep": {"x": FloatDistribution(0, 1)}, "n": IntDistribution(1, 2)},
        metric="loss",
        mode="min",
    )
    config = suggested(searcher, "one")
    assert 0 <= config["deep"]["x"] <= 1
    with pytest.raises(TypeError, match="Optuna's distributions"):
        OptunaSearch({"x": (0, 1)})


def test_nan_and_failures_are_failed_trials() -> None:
    searcher = ready()
    ends: list[tuple[dict[str, Any] | None, bool]] = [
        ({"loss": math.nan}, False),
        ({"loss": -math.inf}, False),
        ({"loss": 1.0}, True),
        (None, True),
        ({}, False),
        ({"loss": 3.0}, False),
    ]
    for number, (result, error) in enumerate(ends):
        searcher.suggest(str(number))
        searcher.on_trial_complete(str(number), result, error)
    expected = [TrialState.FAIL] * 4 + [TrialState.PRUNED, TrialState.COMPLETE]
    assert [trial.state for trial in study_of(searcher).trials] == expected
    assert study_of(searcher).best_value == 3.0


def test_reports_become_intermediate_values_once_per_step(recwarn: pytest.WarningsRecorder) -> None:
    searcher = ready()
    searcher.suggest("one")
    for step, loss in [(1, 3.0), (2, math.nan), (2, 2.0), (1, 9.0), (4, 1.0)]:
        searcher.on_trial_result("one", {"loss": loss, "training_iteration": step})
    searcher.on_trial_result("one", {"training_iteration": 5})
    assert study_of(searcher).trials[0].intermediate_values == {1: 3.0, 2: 2.0, 4: 1.0}
    assert not recwarn.list


def test_several_objectives() -> None:
    searcher = ready(
        metric=["loss", "accuracy", "seen"],
        mode=["min", "max", "obs"],
        sampler=NSGAIISampler(seed=1),
        seed=None,
    )
    for number in range(3):
        searcher.suggest(str(number))
        searcher.on_trial_result(
            str(number), {"loss": 1.0, "accuracy": 0.5, "training_iteration": 1}
        )
        searcher.on_trial_complete(
            str(number), {"loss": float(number), "accuracy": math.nan if number == 2 else 0.5}
        )
    study = study_of(searcher)
    assert [direction.name for direction in study.directions] == ["MINIMIZE", "MAXIMIZE"]
    assert [trial.values for trial in study.trials] == [[0.0, 0.5], [1.0, 0.5], None]
    with pytest.raises(ValueError, match="metric"):
        OptunaSearch(SPACE, mode=["min", "max"])


def test_points_may_leave_parameters_to_optuna() -> None:
    searcher = ready(
        points_to_evaluate=[{"x": 1.5}, {"deep": {"n": 4}, "deep/lr": 0.5, "kind": "b", "x": 0.0}]
    )
    assert suggested(searcher, "one")["x"] == 1.5
    assert suggested(searcher, "two") == {"x": 0.0, "deep": {"lr": 0.5, "n": 4}, "kind": "b"}


def test_points_with_known_rewards_are_learnt_from_instead_of_tried() -> None:
    points = [
        {"x": 1.0, "deep": {"lr": 0.5, "n": 4}, "kind": "a"},
        {"x": 2.0, "deep": {"lr": 0.5, "n": 4}, "kind": "b"},
    ]
    searcher = ready(points_to_evaluate=points, evaluated_rewards=[0.25, math.nan])
    searcher.add_evaluated_point({**points[0], "constant": 1}, 0.5, intermediate_values=[3.0, 0.5])
    trials = study_of(searcher).trials
    assert [trial.value for trial in trials] == [0.25, None, 0.5]
    assert trials[2].intermediate_values == {0: 3.0, 1: 0.5}
    assert suggested(searcher, "one")["x"] not in (1.0, 2.0)
    with pytest.raises(ValueError, match="evaluated_rewards"):
        OptunaSearch(points_to_evaluate=points, evaluated_rewards=[1.0])


def test_steps_are_kept_also_where_optuna_has_none() -> None:
    searcher = ready(
        {
            "a": quniform(0, 1, 0.1),
            "b": loguniform(0.5, 8).quantized(0.5),
            "c": choice([{"size": 1}, (1, 2)]),
        }
    )
    for number in range(10):
        config = suggested(searcher, str(number))
        assert config["a"] == round(config["a"], 1)
        assert config["b"] % 0.5 == 0
        assert config["c"] in ({"size": 1}, (1, 2))


def test_a_storage_is_continued(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    first = ready(storage=optuna.storages.RDBStorage(url), study_name="mine")
    first.suggest("one")
    state = first.get_state()
    first.on_trial_result("one", {"loss": 2.0, "training_iteration": 1})
    first.on_trial_complete("one", {"loss": 2.0})

    restored = ready()
    restored.set_state(state)
    # What happened after the state was taken is told again.
    restored.on_trial_result("one", {"loss": 2.0, "training_iteration": 1})
    restored.on_trial_complete("one", {"loss": 2.0})
    restored.suggest("two")
    study = optuna.load_study(study_name="mine", storage=url)
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE, TrialState.RUNNING]


def test_optuna_stays_quiet_and_keeps_its_verbosity(capfd: pytest.CaptureFixture[str]) -> None:
    before = optuna.logging.get_verbosity()
    ready().suggest("one")
    assert optuna.logging.get_verbosity() == before
    assert capfd.readouterr() == ("", "")


def test_wrong_samplers_and_storages_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(TypeError, match="optuna.samplers"):
        OptunaSearch(sampler="tpe")
    with pytest.raises(TypeError, match="optuna.storages"):
        OptunaSearch(storage="sqlite:///x.db")
    with caplog.at_level(logging.WARNING):
        OptunaSearch(sampler=RandomSampler(), seed=3)
    assert "ignores seed=3" in caplog.text


def test_a_space_is_converted_without_a_searcher() -> None:
    assert OptunaSearch.convert_search_space({**SPACE, "constant": 3}) == DISTRIBUTIONS
    searcher = OptunaSearch(OptunaSearch.convert_search_space(SPACE), metric="loss", mode="min")
    suggested = searcher.suggest("a")
    assert suggested is not None
    assert set(suggested) == {"x", "deep", "kind"}
