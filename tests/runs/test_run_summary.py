"""Fields of a run's summary that lists show."""

import time
from pathlib import Path

import pytest

from syncline import runs
from syncline.runs import LocalFiles, RunDirectory, run_list
from syncline.runs.annotations import annotate
from syncline.runs.run_list import parameters_of
from syncline.runs.run_storage import LocalDirectory


def test_the_summary_has_annotations_parameters_and_the_cause(tmp_path: Path) -> None:
    with RunDirectory(LocalFiles(tmp_path)) as record:
        record.write_run("a", {"train_config": {"lr": 0.1}}, detailed=False)
        record.write_outcome("errored", "Traceback (most recent call last):\n  x\nKeyError: 'y'")
    annotate(LocalDirectory(tmp_path), add_tags=["t"], note="n", archived=True)
    summary = run_list.summarize_run(LocalDirectory(tmp_path))
    assert (summary.tags, summary.note, summary.archived) == (("t",), "n", True)
    assert summary.parameters == {"lr": 0.1}
    assert summary.as_json()["cause"] == summary.cause == "KeyError: 'y'"


def test_earlier_records_of_failed_searches_are_errored(tmp_path: Path) -> None:
    with RunDirectory(LocalFiles(tmp_path)) as record:
        record.write_run("a", {}, kind="tune", detailed=False)
        record.write_outcome("failed", "TuneError: x")
    assert run_list.summarize_run(LocalDirectory(tmp_path)).state == "errored"


def test_parameters_are_flat_scalars_without_secrets() -> None:
    config = {
        "lr": 0.1,
        "model": {"layers": 3, "on": True},
        "api_key": "abc",
        "list": [1],
        "n": None,
    }
    assert parameters_of({"train_config": config}) == {
        "lr": 0.1,
        "model/layers": 3,
        "model/on": True,
        "api_key": "***",
    }


@pytest.mark.parametrize("config", [None, [], {}, {"train_config": None}, {"train_config": [1]}])
def test_a_run_may_have_no_parameters(config: object) -> None:
    assert parameters_of(config) == {}


def test_the_number_of_parameters_is_bounded() -> None:
    deep: dict[str, object] = {}
    deep["deeper"] = deep
    many = {f"p{number}": number for number in range(10_000)}
    assert len(parameters_of({"train_config": {"deep": deep, **many}})) == 200


def test_a_running_run_is_stalled_until_it_resumes(tmp_path: Path) -> None:
    with RunDirectory(LocalFiles(tmp_path)) as record:
        record.write_run("a", {}, detailed=False)
        record.event("started")
        record.event("stalled", since=time.time() - 240)
        assert run_list.summarize_run(LocalDirectory(tmp_path)).cause == "stalled for 4 min"
        assert runs.open(tmp_path).summary.cause == "stalled for 4 min"
        record.event("resumed")
        assert run_list.summarize_run(LocalDirectory(tmp_path)).cause == ""
        record.event("stalled", since=time.time() - 240)
        record.write_outcome("finished")
    assert run_list.summarize_run(LocalDirectory(tmp_path)).cause == ""
