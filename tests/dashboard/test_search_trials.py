"""Views of a search's trials for any record."""

from __future__ import annotations

import json
from typing import Any

import pytest

from syncline.dashboard.search_trials import (
    MAX_METRICS,
    MAX_PARAMETERS,
    SearchSnapshot,
    TrialReader,
    as_json,
    as_python,
    expected_of,
    guessed_mode,
    objective,
    prefix_of,
    short_names,
)


def searched(*lines: Any, prefix: str | None = None) -> SearchSnapshot:
    trials = TrialReader(prefix)
    trials.add(lines)
    return trials.snapshot()


def line(trial: str, **fields: Any) -> dict[str, Any]:
    return {"trial": trial, **fields}


def test_what_lines_say_adds_up() -> None:
    (trial,) = searched(
        line(
            "a_0",
            time=1.0,
            status="PENDING",
            iteration=0,
            name="train_0",
            config={"lr": 0.1, "n": {"k": [1, 2]}},
        ),
        line("a_0", time=2.0, status="RUNNING", iteration=0, hostname="here", pid=7, started=1.5),
        line(
            "a_0",
            time=9.0,
            status="TERMINATED",
            iteration=4,
            metrics={"loss": 0.5},
            stopped_by="scheduler",
            checkpoint="/x/checkpoint_1",
        ),
    ).trials
    assert (trial.name, trial.status, trial.iteration, trial.host, trial.pid) == (
        "train_0",
        "TERMINATED",
        4,
        "here",
        7,
    )
    assert trial.parameters == {"lr": 0.1, "n/k": "[1, 2]"}
    assert trial.metrics == {"loss": 0.5}
    assert (trial.started, trial.changed, trial.time_s) == (1.5, 9.0, 7.5)
    assert (trial.stopped_by, trial.checkpoint) == ("scheduler", "/x/checkpoint_1")


def test_an_error_that_is_over_is_taken_back() -> None:
    lines = [
        line("a_0", status="ERROR", error="Traceback\n  somewhere\nValueError: no"),
        line("a_0", status="PENDING", error=None),
    ]
    assert searched(lines[0]).trials[0].cause == "ValueError: no"
    assert searched(*lines).trials[0].cause == ""


def test_a_snapshot_stays_as_it_was() -> None:
    trials = TrialReader()
    trials.add([line("a_0", status="RUNNING")])
    before = trials.snapshot()
    assert trials.add([line("a_0", status="ERROR"), line("a_1")])
    assert [trial.status for trial in before.trials] == ["RUNNING"]
    assert [trial.status for trial in trials.snapshot().trials] == ["ERROR", "PENDING"]
    assert not trials.add([])


def test_trials_of_a_search_that_was_there_before_are_left_out() -> None:
    assert [
        trial.id
        for trial in searched(line("old_0"), line("new_0"), line("newer_0"), prefix="new").trials
    ] == ["new_0"]


@pytest.mark.parametrize(
    "fields",
    [
        {
            "status": ["RUNNING"],
            "iteration": "x",
            "config": "y",
            "metrics": [1],
            "time": "z",
            "error": 5,
            "pid": -1,
            "name": {},
        },
        {
            "status": "GONE",
            "iteration": True,
            "config": None,
            "metrics": None,
            "time": float("nan"),
            "error": None,
            "pid": 2**80,
        },
        {
            "iteration": 1.5,
            "metrics": {"a": "1", "b": True, "c": None, "d": [1], "e": float("inf"), "f": 10**400},
            "started": "now",
        },
    ],
)
def test_values_of_wrong_types_are_left_out(fields: dict[str, Any]) -> None:
    (trial,) = searched(line("a_0", **fields)).trials
    assert (trial.status, trial.iteration, trial.name, trial.pid, trial.error) == (
        "PENDING",
        0,
        "a_0",
        None,
        "",
    )
    assert trial.metrics == trial.parameters == {}


@pytest.mark.parametrize("name", [None, 5, "", ["a"], "x" * 1_000])
def test_what_has_no_usable_id_is_no_trial(name: Any) -> None:
    assert searched({"trial": name, "status": "RUNNING"}, {}).trials == ()


def test_large_things_are_cut() -> None:
    config = {
        "text": "x" * 100_000,
        "list": list(range(100_000)),
        "number": 10**400,
        **{f"p{number}": number for number in range(10_000)},
    }
    deep: Any = 1
    for _ in range(200):
        deep = {"k": deep}
    (trial,) = searched(
        line(
            "a_0",
            name="n" * 100_000,
            error="e" * 100_000,
            config={**config, "deep": deep},
            metrics={f"m{at}": 1 for at in range(5_000)},
        )
    ).trials
    assert len(trial.name) == 255
    assert len(trial.error) == 10_000
    assert len(trial.parameters) <= MAX_PARAMETERS
    assert len(trial.metrics) == MAX_METRICS
    assert len(as_json(trial.config)) < 200_000


def test_secrets_in_configurations_and_errors_are_masked() -> None:
    token = "hf_0123456789abcdefghijABCDEFGHIJ"
    (trial,) = searched(
        line("a_0", config={"api_key": "k", "n": [token]}, error=f"bad {token}")
    ).trials
    assert trial.config == {"api_key": "***", "n": ["***"]}
    assert token not in trial.error


def test_what_varies_is_what_differs_or_is_missing_somewhere() -> None:
    snapshot = searched(
        line("a_0", config={"same": 1, "lr": 0.1, "only_first": 1, "kind": 1}),
        line("a_1", config={"same": 1, "lr": 0.2, "only_second": 1, "kind": True}),
    )
    assert snapshot.varying == ("lr", "only_first", "kind", "only_second")
    assert searched(line("a_0", config={"lr": 1})).varying == ()


def test_the_best_trial_is_the_first_with_the_best_latest_value() -> None:
    snapshot = searched(
        line("a_0"),
        line("a_1", metrics={"loss": 0.5}),
        line("a_2", metrics={"loss": 0.5}),
        line("a_3", metrics={"loss": float("nan")}),
    )
    best = snapshot.best("loss", "min")
    assert best is not None
    assert best.id == "a_1"
    assert snapshot.best("nothing", "max") is None


def test_latest_results_of_running_trials_are_taken_in() -> None:
    snapshot = searched(
        line("a_0", status="RUNNING"),
        line("a_1", status="TERMINATED", iteration=5, metrics={"loss": 1.0}),
    )
    later = snapshot.with_latest(
        {"a_0": (3, {"loss": 0.5}), "a_1": (2, {"loss": 9.0}), "unknown": (1, {})}
    )
    assert [(trial.iteration, trial.metrics) for trial in later.trials] == [
        (3, {"loss": 0.5}),
        (5, {"loss": 1.0}),
    ]
    assert snapshot.with_latest({}) is snapshot


def test_the_objective_is_the_searchs_or_guessed() -> None:
    assert objective({"objective": {"metric": "val", "mode": "max"}}, ()) == ("val", "max")
    assert objective(
        {"objective": {"metric": None, "mode": None}}, ("time_total_s", "accuracy")
    ) == ("accuracy", "max")
    assert objective({"objective": ["damaged"]}, ()) == (None, "min")
    assert (guessed_mode("val/AUC"), guessed_mode("loss")) == ("max", "min")


@pytest.mark.parametrize(
    "trials",
    [
        None,
        [],
        {"prefix": 5, "expected": "many"},
        {"expected": True},
        {"expected": -1},
        {"expected": float("inf")},
    ],
)
def test_what_a_record_says_of_its_trials_is_checked(trials: Any) -> None:
    assert prefix_of({"trials": trials}) is None
    assert expected_of({"trials": trials}) is None


def test_a_configuration_to_copy_is_python_or_json() -> None:
    config = {"lr": 0.1, "flag": True, "none": None, "n": {"inf": float("inf")}, "quotes": "it's"}
    assert eval(as_python(config)) == config  # text of syncline itself
    assert json.loads(as_json(config)) == config


def test_short_names_are_the_shortest_ends_that_are_unique() -> None:
    assert short_names(["model/lr", "optimizer/lr", "deep/er/width", "x"]) == {
        "model/lr": "model/lr",
        "optimizer/lr": "optimizer/lr",
        "deep/er/width": "width",
        "x": "x",
    }
    assert short_names(["a/", "/b", "//"]).keys() == {"a/", "/b", "//"}
