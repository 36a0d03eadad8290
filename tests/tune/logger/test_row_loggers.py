"""result.json, params.* and progress.csv: what is in them, and that a trial that goes on repeats no
row.
"""

import csv
import json
import os
import pickle

import numpy as np
import pandas as pd
import pytest

from syncline.tune.logger import CSVLoggerCallback, JsonLoggerCallback
from syncline.tune.logger import trial_files as trial_files_module
from tests.tune.logger.logged_trials import Search, make_trial


def json_rows(trial):
    with open(os.path.join(trial.local_path, "result.json")) as file:
        return [json.loads(line) for line in file]


def csv_rows(trial):
    with open(os.path.join(trial.local_path, "progress.csv"), newline="") as file:
        return list(csv.DictReader(file))


def iterations(trial):
    """What the two files hold; AssertionError if they differ."""
    of_json = [row["training_iteration"] for row in json_rows(trial)]
    assert [int(row["training_iteration"]) for row in csv_rows(trial)] == of_json
    return of_json


def open_descriptors():
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def search():
    return Search(CSVLoggerCallback(), JsonLoggerCallback())


def test_every_result_is_in_the_files_when_the_hook_returns(search, tmp_path):
    trial = make_trial(tmp_path, lr=0.1)
    search.start(trial)
    search.report(trial, [1, 2])
    assert iterations(trial) == [1, 2]
    assert json_rows(trial)[1] == {"loss": 2.0, "training_iteration": 2, "config": {"lr": 0.1}}
    assert csv_rows(trial)[1] == {"loss": "2.0", "training_iteration": "2"}


def test_numpy_values_nan_and_odd_objects_can_be_read_again(search, tmp_path):
    trial = make_trial(tmp_path)
    search.start(trial)
    search.report(
        trial,
        [1],
        a=np.float32(0.5),
        b=np.int64(3),
        c=np.arange(3),
        d=float("nan"),
        e=np.bool_(True),
        f=print,
        g={1: {2}},
    )
    row = json_rows(trial)[0]
    assert {key: row[key] for key in "abce"} == {"a": 0.5, "b": 3, "c": [0, 1, 2], "e": True}
    assert np.isnan(row["d"])
    assert "print" in row["f"]
    assert row["g"] == {"1": [2]}


def test_keys_that_json_does_not_have_become_text(search, tmp_path):
    trial = make_trial(tmp_path)
    search.start(trial)
    search.report(trial, [1], matrix={(0, 1): 5})
    assert json_rows(trial)[0]["matrix"] == {"(0, 1)": 5}


def test_params_are_written_for_people_and_for_programs(search, tmp_path):
    trial = make_trial(
        tmp_path, lr=np.float64(0.1), layers=np.int64(3), net={"width": 8, "act": len}
    )
    search.start(trial)
    with open(os.path.join(trial.local_path, "params.json")) as file:
        assert json.load(file) == {
            "lr": 0.1,
            "layers": 3,
            "net": {"width": 8, "act": "builtins.len"},
        }
    with open(os.path.join(trial.local_path, "params.pkl"), "rb") as file:
        assert pickle.load(file) == trial.config


def test_params_follow_a_configuration_that_has_changed(search, tmp_path):
    trial = make_trial(tmp_path, lr=0.1)
    search.start(trial)
    search.report(trial, [1])
    trial.config = {"lr": 0.2}
    search.start(trial, iteration=1)
    with open(os.path.join(trial.local_path, "params.json")) as file:
        assert json.load(file) == {"lr": 0.2}


def test_nested_values_get_columns_of_their_own_and_pandas_reads_the_table(search, tmp_path):
    trial = make_trial(tmp_path)
    search.start(trial)
    search.report(trial, [1, 2], eval={"top1": 0.5, "by_class": {"cat": 0.25}}, note='a "b", c\nd')
    table = pd.read_csv(os.path.join(trial.local_path, "progress.csv"))
    assert list(table.columns) == [
        "loss",
        "training_iteration",
        "eval/top1",
        "eval/by_class/cat",
        "note",
    ]
    assert table["eval/by_class/cat"].tolist() == [0.25, 0.25]
    assert table["note"][0] == 'a "b", c\nd'


def test_keys_that_come_later_widen_the_table_and_lose_nothing(search, tmp_path):
    trial = make_trial(tmp_path)
    search.start(trial)
    search.report(trial, [1, 2])
    search.report(trial, [3], late=7)
    search.report(trial, [4])
    search.report(trial, [5], other=8, late=9)
    rows = csv_rows(trial)
    assert [row["late"] for row in rows] == ["", "", "7", "", "9"]
    assert [row["other"] for row in rows] == ["", "", "", "", "8"]
    assert [row["loss"] for row in rows] == ["1.0", "2.0", "3.0", "4.0", "5.0"]


@pytest.mark.parametrize("anew", [False, True], ids=["same program", "restored search"])
@pytest.mark.parametrize("iteration", [0, 3, 5, 9])
def test_a_trial_that_goes_on_has_each_iteration_once(tmp_path, anew, iteration):
    trial = make_trial(tmp_path)
    search = Search(CSVLoggerCallback(), JsonLoggerCallback())
    search.start(trial)
    search.report(trial, range(1, 6))
    if anew:
        search = Search(CSVLoggerCallback(), JsonLoggerCallback())
    search.start(trial, iteration)
    search.report(trial, [iteration + 1, iteration + 2])
    assert iterations(trial) == [*range(1, min(iteration, 5) + 1), iteration + 1, iteration + 2]


@pytest.mark.parametrize("file", ["result.json", "progress.csv"])
def test_a_row_that_a_kill_has_torn_is_cut_off(tmp_path, file):
    trial = make_trial(tmp_path)
    search = Search(CSVLoggerCallback(), JsonLoggerCallback())
    search.start(trial)
    search.report(trial, [1, 2, 3])
    path = os.path.join(trial.local_path, file)
    os.truncate(path, os.path.getsize(path) - 3)
    restored = Search(CSVLoggerCallback(), JsonLoggerCallback())
    restored.start(trial, iteration=2)
    restored.report(trial, [3, 4])
    assert iterations(trial) == [1, 2, 3, 4]


def test_a_restored_table_keeps_its_columns(tmp_path):
    trial = make_trial(tmp_path)
    search = Search(CSVLoggerCallback())
    search.start(trial)
    search.report(trial, [1, 2], note="line\nbreak", early=1)
    restored = Search(CSVLoggerCallback())
    restored.start(trial, iteration=1)
    restored.report(trial, [2], note="x")
    rows = csv_rows(trial)
    assert [(row["note"], row["early"]) for row in rows] == [("line\nbreak", "1"), ("x", "")]


def test_a_trial_from_scratch_has_the_columns_of_its_new_results(tmp_path):
    trial = make_trial(tmp_path)
    search = Search(CSVLoggerCallback())
    search.start(trial)
    search.report(trial, [1], former=1)
    restored = Search(CSVLoggerCallback())
    restored.start(trial)
    restored.report(trial, [1])
    assert csv_rows(trial) == [{"loss": "1.0", "training_iteration": "1"}]


def test_a_paused_trial_is_not_read_again(tmp_path, monkeypatch):
    trial, search = make_trial(tmp_path), Search(CSVLoggerCallback(), JsonLoggerCallback())
    search.start(trial)
    search.report(trial, [1, 2])
    monkeypatch.setattr(trial_files_module, "_read", lambda path: pytest.fail("the file was read"))
    search.start(trial, iteration=2)
    search.report(trial, [3])
    assert iterations(trial) == [1, 2, 3]


def test_results_without_a_start_are_written(search, tmp_path):
    trial = make_trial(tmp_path)
    search.report(trial, [1])
    assert iterations(trial) == [1]


def test_ended_trials_hold_no_files(search, tmp_path):
    before = open_descriptors()
    for number in range(20):
        trial = make_trial(tmp_path, f"t{number}")
        search.start(trial)
        search.report(trial, [1])
        (search.complete if number % 2 else search.fail)(trial)
    assert open_descriptors() == before


def test_many_running_trials_share_a_few_open_files(search, tmp_path, monkeypatch):
    monkeypatch.setattr(trial_files_module, "OPEN_FILES", 3)
    before = open_descriptors()
    trials = [make_trial(tmp_path, f"t{number}") for number in range(10)]
    for trial in trials:
        search.start(trial)
    for iteration in range(1, 4):
        for trial in trials:
            search.report(trial, [iteration])
    assert open_descriptors() <= before + 2 * 3
    assert all(iterations(trial) == [1, 2, 3] for trial in trials)
    search.end()
    assert open_descriptors() == before


def test_a_full_disk_leaves_whole_rows(tmp_path, monkeypatch):
    trial, logger = make_trial(tmp_path), JsonLoggerCallback()
    search = Search(logger)
    search.start(trial)
    search.report(trial, [1])
    write = os.write

    def half(descriptor, data):
        if len(data) < 20:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[: len(data) - 10])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", half)
        search.report(trial, [2])
    search.report(trial, [3])
    assert [row["training_iteration"] for row in json_rows(trial)] == [1, 3]


def test_loggers_can_be_pickled_before_and_during_a_search(tmp_path):
    trial = make_trial(tmp_path)
    for logger in (CSVLoggerCallback(), JsonLoggerCallback()):
        search = Search(logger)
        search.start(trial)
        search.report(trial, [1])
        restored = Search(pickle.loads(pickle.dumps(logger)))
        restored.start(trial, iteration=1)
        restored.report(trial, [2])
    assert iterations(trial) == [1, 2]


# -- where the trial's directory is elsewhere


def test_files_elsewhere_are_uploaded_at_checkpoints_and_at_the_end(tmp_path):
    trial, logger = make_trial(tmp_path, elsewhere=True, lr=0.1), JsonLoggerCallback()
    search, path = Search(logger), tmp_path / "search" / "1a2b_00000" / "result.json"
    search.start(trial)
    search.report(trial, [1, 2])
    search.save(trial)
    assert logger._files._uploading.wait(30)
    assert len(path.read_text().splitlines()) == 2
    search.report(trial, [3])
    search.complete(trial)
    search.end()
    assert [json.loads(line)["training_iteration"] for line in path.read_text().splitlines()] == [
        1,
        2,
        3,
    ]
    assert json.loads((path.parent / "params.json").read_text()) == {"lr": 0.1}


def test_files_elsewhere_go_on_where_a_restored_trial_does(tmp_path):
    trial, search = (
        make_trial(tmp_path, elsewhere=True),
        Search(CSVLoggerCallback(), JsonLoggerCallback()),
    )
    search.start(trial)
    search.report(trial, range(1, 6))
    search.end()  # interrupted
    restored = Search(CSVLoggerCallback(), JsonLoggerCallback())
    restored.start(trial, iteration=2)
    restored.report(trial, [3])
    restored.complete(trial)
    restored.end()
    local = make_trial(tmp_path)
    assert iterations(local) == [1, 2, 3]


def test_a_failing_upload_is_told_once_and_ends_nothing(tmp_path, monkeypatch, caplog):
    trial, search = make_trial(tmp_path, elsewhere=True), Search(CSVLoggerCallback())
    monkeypatch.setattr(
        "syncline.train.storage.context.ArrowFiles.write",
        lambda *arguments: (_ for _ in ()).throw(OSError("no route to host")),
    )
    search.start(trial)
    search.report(trial, [1])
    search.save(trial)
    search.complete(trial)
    search.end()
    assert [record.message for record in caplog.records] == [
        "Uploading progress.csv failed; the run continues. Further failures are not logged."
    ]
