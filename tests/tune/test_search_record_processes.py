"""Record of searches with real trials: complete, also after a kill, and answered while they run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline import runs, tune
from syncline.core import control
from syncline.testing.waiting import eventually

pytestmark = pytest.mark.processes

KILLED_SEARCH = Path(__file__).parent / "chaos" / "killed_search.py"


@pytest.fixture
def engine() -> Iterator[None]:
    syncline.init(num_cpus=2)
    yield
    syncline.shutdown()


def lines_of(run: Path, name: str = "trials.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / name).read_text().splitlines()]


def told(lines: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Merge the lines of each trial."""
    trials: dict[str, dict[str, Any]] = {}
    for line in lines:
        trials.setdefault(line["trial"], {}).update(line)
    return trials


def report_three_times(config: dict[str, Any]) -> None:
    for step in range(3):
        tune.report(
            {"loss": config["x"] / (step + 1), "inner": {"step": step}, "text": "not recorded"}
        )
    if config["x"] == 2:
        raise ValueError("two is one too many")


@pytest.mark.usefixtures("engine")
def test_a_search_leaves_its_trials_and_every_result(tmp_path: Path) -> None:
    results = tune.Tuner(
        report_three_times,
        param_space={
            "x": tune.grid_search([1, 2, 3]),
            "token": "hf_0123456789abcdefghijABCDEFGHIJ",
        },
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(name="search", storage_path=str(tmp_path), verbose=0),
    ).fit()
    path = tmp_path / "search"
    described = json.loads((path / "run.json").read_text())
    assert described["kind"] == "tune"
    assert described["config"]["objective"] == {"metric": "loss", "mode": "min"}
    assert described["config"]["trials"]["expected"] == 3
    trials = told(lines_of(path))
    assert len(trials) == len(results) == 3
    assert all(trial_id.startswith(described["config"]["trials"]["prefix"]) for trial_id in trials)
    by_x = {trial["config"]["x"]: trial for trial in trials.values()}
    assert {x: trial["status"] for x, trial in by_x.items()} == {
        1: "TERMINATED",
        2: "ERROR",
        3: "TERMINATED",
    }
    assert all(
        trial["iteration"] == 3
        and trial["pid"]
        and trial["hostname"]
        and trial["config"]["token"] == "***"
        for trial in by_x.values()
    )
    assert by_x[2]["error"].strip().endswith("ValueError: two is one too many")
    assert by_x[1]["metrics"]["loss"] == pytest.approx(1 / 3)
    reports = lines_of(path, "metrics.jsonl")
    assert sorted((report["trial"], report["iteration"]) for report in reports) == sorted(
        (t, i) for t in trials for i in (1, 2, 3)
    )
    assert all(
        report["metrics"].keys() == {"loss", "inner/step", "time_total_s"} for report in reports
    )
    summary = runs.open(path).summary
    assert summary.kind == "tune"
    assert summary.trials == {"TERMINATED": 2, "ERROR": 1, "expected": 3}
    assert summary.metrics["loss"] == pytest.approx(1 / 3)
    assert summary.reports == 9


def test_the_record_of_a_killed_search_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "search"
    command = [sys.executable, str(KILLED_SEARCH), str(tmp_path), "40"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )
        try:
            metrics = path / "metrics.jsonl"
            eventually(
                lambda: metrics.exists() and metrics.stat().st_size > 300,
                within_s=120,
                what="some results",
            )
        finally:
            process.kill()
            process.wait()
        assert runs.open(path).state == "killed"
        assert (
            subprocess.run(
                command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=240
            ).returncode
            == 0
        )
    outcome = json.loads((tmp_path / "outcome.json").read_text())
    lines = lines_of(path)
    trials = told(lines)
    assert [trial["status"] for trial in trials.values()] == ["TERMINATED"] * 40
    assert [[trial["config"]["x"], trial["iteration"]] for _, trial in sorted(trials.items())] == [
        [x, at] for x, _, at, _ in outcome["trials"]
    ]
    for trial_id in trials:
        own = [
            {key: value for key, value in line.items() if key != "time"}
            for line in lines
            if line["trial"] == trial_id
        ]
        assert sum("config" in line for line in own) == 1, "the configuration has not changed"
        assert all(one != next_one for one, next_one in zip(own, own[1:], strict=False)), (
            "no line is said twice"
        )
    run = runs.open(path)
    assert run.summary.trials == {"TERMINATED": 40, "expected": 40}
    drawn = 0
    for trial_id, trial in trials.items():
        iterations, _ = run.series.curve("loss", trial_id)
        assert iterations == sorted(set(iterations))
        drawn += bool(iterations) and iterations[-1] == trial["iteration"]
    assert drawn >= 20, "a kill costs the results of its last second, and no more"


def work_until_told(config: dict[str, Any]) -> None:
    while not os.path.exists(config["end"]):
        sum(range(1_000))
    tune.report({"loss": 0.5})


def asked(path: Path) -> dict[str, Any]:
    """Return the answers of a search about its running trial."""
    subject = f"run:{path}"
    eventually(lambda: control.find(subject) is not None, what="a search that answers")
    program = control.find(subject)
    assert program is not None
    eventually(lambda: bool(control.request(program, subject, "workers")), what="a trial that runs")
    (worker,) = control.request(program, subject, "workers")

    def stack() -> str:
        return str(
            control.request(program, subject, "stacks", {"ranks": [worker["rank"]]})[worker["rank"]]
        )

    eventually(lambda: "work_until_told" in stack(), what="the stack of the trial's function")
    answers = {"worker": worker}
    for name, arguments in {
        "nobody": {"rank": "nobody", "kind": "cpu"},
        "memory": {"rank": worker["rank"], "kind": "memory"},
    }.items():
        with pytest.raises(control.ActionFailed) as refused:
            control.request(program, subject, "profile", arguments)
        answers[name] = str(refused.value)
    return answers


@pytest.mark.usefixtures("engine")
def test_a_search_answers_for_its_trials_while_they_run(tmp_path: Path) -> None:
    path, end = tmp_path / "search", tmp_path / "end"

    def ask_and_end() -> dict[str, Any]:
        try:
            return asked(path)
        finally:
            end.touch()

    run_config = tune.RunConfig(name="search", storage_path=str(tmp_path), verbose=0)
    with ThreadPoolExecutor(1) as pool:
        answers = pool.submit(ask_and_end)
        tune.Tuner(work_until_told, param_space={"end": str(end)}, run_config=run_config).fit()
        found = answers.result()
    (trial,) = told(lines_of(path)).values()
    assert (found["worker"]["rank"], found["worker"]["pid"]) == (trial["trial"], trial["pid"])
    assert "trial 'nobody' runs" in found["nobody"]
    assert "use 'cpu'" in found["memory"]
    assert control.find(f"run:{path}") is None, "an ended search does not answer"
