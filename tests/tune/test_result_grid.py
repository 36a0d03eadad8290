"""`ResultGrid`, and `Result` objects, also read from a directory."""

import json
import math
from pathlib import Path

import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from syncline import train
from syncline.core.error_frames import pack_error
from syncline.train.checkpoint import Checkpoint
from syncline.tune.analysis import ExperimentAnalysis
from syncline.tune.error import TuneError
from syncline.tune.experiment.trial import Trial
from syncline.tune.result_grid import Result, ResultGrid


def grid(trials, metric=None, mode=None) -> ResultGrid:
    path = trials[0].storage.storage_fs_path
    return ResultGrid(
        ExperimentAnalysis(path, trials=trials, default_metric=metric, default_mode=mode)
    )


def test_is_a_sequence_of_results(make_trial) -> None:
    results = grid([make_trial(at, losses=[float(at)]) for at in range(3)])
    assert len(results) == 3
    assert all(isinstance(result, train.Result) for result in results)
    assert [result.metrics["loss"] for result in results] == [0.0, 1.0, 2.0]
    assert results[1].config == {"lr": 0.2}
    assert [result.config["lr"] for result in results[1:]] == pytest.approx([0.2, 0.3])
    assert results[-1] is results[2]
    with pytest.raises(IndexError):
        results[3]


def test_counts_and_errors(make_trial, tmp_path) -> None:
    failed, odd = make_trial(1, status=Trial.ERROR), make_trial(2, status=Trial.ERROR)
    failed.set_error(pack_error(ValueError("no data")), "")
    odd.error_text = "Traceback\nWorkerCrashedError: killed"
    results = grid([make_trial(0), failed, odd, make_trial(3, status=Trial.PAUSED)])
    assert (results.num_errors, results.num_terminated) == (2, 1)
    assert str(results.errors[0]) == "no data"
    assert results.errors[0] is failed.exception
    assert isinstance(results.errors[1], TuneError)
    assert "WorkerCrashedError: killed" in str(results.errors[1])
    assert results.experiment_path == str(tmp_path / "search")
    assert isinstance(results.filesystem, LocalFileSystem)


def test_trial_that_recovered_has_no_error(make_trial) -> None:
    trial = make_trial(0)
    trial.set_error(pack_error(ValueError("at first")), "")
    trial.num_failures = 1
    assert grid([trial])[0].error is None


@pytest.mark.parametrize(
    ("mode", "scope", "best"),
    [
        ("min", "last", 1),
        ("max", "last", 0),
        ("min", "all", 0),
        ("max", "all", 2),
        ("min", "avg", 1),
        ("max", "avg", 2),
    ]
    + [("min", "last-5-avg", 1), ("max", "last-10-avg", 2)],
)
def test_best_result_by_scope(make_trial, mode, scope, best) -> None:
    trials = [
        make_trial(0, losses=[0.0, 5.0, 7.0]),
        make_trial(1, losses=[2.0, 2.0, 2.0]),
        make_trial(2, losses=[20.0, 4.0, 3.0]),
    ]
    assert grid(trials).get_best_result("loss", mode, scope).path == trials[best].path


def test_best_result_by_what_the_search_was_for(make_trial) -> None:
    trials = [make_trial(at, losses=[loss]) for at, loss in enumerate([3.0, 1.0, 2.0])]
    assert grid(trials, "loss", "min").get_best_result().metrics["loss"] == 1.0


def test_best_result_by_a_nested_metric(make_trial) -> None:
    trials = [make_trial(at, losses=[1.0], val={"f1": f1}) for at, f1 in enumerate([0.1, 0.9, 0.5])]
    assert grid(trials).get_best_result("val/f1", "max").path == trials[1].path


def test_values_that_are_not_finite_are_never_best_unless_asked_for(make_trial) -> None:
    trials = [make_trial(at, losses=[loss]) for at, loss in enumerate([math.inf, 1.0, math.nan])]
    assert grid(trials).get_best_result("loss", "max").path == trials[1].path
    assert (
        grid(trials).get_best_result("loss", "max", filter_nan_and_inf=False).path == trials[0].path
    )
    with pytest.raises(RuntimeError, match="filter_nan_and_inf=False"):
        grid(trials[::2]).get_best_result("loss", "max")


def test_unknown_metric_names_the_nearest(make_trial) -> None:
    trials = [make_trial(at, losses=[1.0], accuracy=0.5) for at in range(2)]
    with pytest.raises(
        RuntimeError, match=r"Did you mean 'accuracy'\? Reported are \['accuracy', 'loss'\]"
    ):
        grid(trials).get_best_result("acuracy", "max")
    with pytest.raises(RuntimeError, match="Did you mean 'loss'"):
        grid(trials[:1]).get_best_result("los", "max")


def test_search_without_any_report_says_so(make_trial) -> None:
    with pytest.raises(RuntimeError, match=r"or any other number.*results\.errors"):
        grid([make_trial(0), make_trial(1)]).get_best_result("loss", "min")


def test_missing_metric_and_mode(make_trial) -> None:
    results = grid([make_trial(at, losses=[1.0]) for at in range(2)])
    with pytest.raises(ValueError, match="pass `metric`"):
        results.get_best_result()
    with pytest.raises(ValueError, match="pass `mode="):
        results.get_best_result("loss")
    with pytest.raises(ValueError, match="mode='up' is unknown"):
        results.get_best_result("loss", "up")
    with pytest.raises(ValueError, match="scope='first' is unknown"):
        results.get_best_result("loss", "min", "first")


def test_single_trial_is_the_best_without_a_metric(make_trial) -> None:
    assert grid([make_trial(0, losses=[1.0])]).get_best_result().metrics["loss"] == 1.0


def test_table_has_a_row_for_each_trial(make_trial) -> None:
    trials = [
        make_trial(at, config={"model": {"lr": 0.5}}, losses=[3.0, 1.0, 2.0], write=True)
        for at in range(3)
    ]
    results = grid(trials)
    table = results.get_dataframe()
    assert list(table["loss"]) == [2.0] * 3
    assert list(table["config/model/lr"]) == [0.5] * 3
    assert list(results.get_dataframe("loss", "min")["training_iteration"]) == [2] * 3
    assert list(results.get_dataframe("loss", "max")["training_iteration"]) == [1] * 3
    with pytest.raises(ValueError, match="Did you mean 'loss'"):
        results.get_dataframe("los", "min")


def test_printing_is_short(make_trial) -> None:
    text = repr(grid([make_trial(at, losses=[0.5]) for at in range(30)]))
    assert text.startswith(
        "ResultGrid<[\n  Result(\n    metrics={'loss': 0.5},\n    config={'lr': 0.1},\n    path="
    )
    assert text.count("Result(") == 10
    assert text.endswith("  ... and 20 more\n]>")


def test_every_report_as_a_table(make_trial) -> None:
    trial = make_trial(0, losses=[3.0, 1.0], val={"f1": 0.5}, write=True)
    result = Result.from_trial(trial)
    assert list(result.metrics_dataframe["loss"]) == [3.0, 1.0]
    assert list(result.metrics_dataframe["val/f1"]) == [0.5, 0.5]
    assert result.metrics_dataframe is result.metrics_dataframe
    assert Result.from_trial(make_trial(1)).metrics_dataframe.empty


def test_kept_checkpoints(make_trial, tmp_path) -> None:
    trial = make_trial(0, losses=[1.0])
    for at, loss in enumerate([2.0, 1.0, 3.0]):
        trial.record_checkpoint(Checkpoint(tmp_path / f"checkpoint_{at:06d}"), {"loss": loss})
    result = Result.from_trial(trial)
    assert result.checkpoint == Checkpoint(tmp_path / "checkpoint_000002")
    assert result.get_best_checkpoint("loss", "min") == Checkpoint(tmp_path / "checkpoint_000001")
    assert len(result.best_checkpoints) == 3
    with pytest.raises(RuntimeError, match="has no checkpoint"):
        Result.from_trial(make_trial(1)).get_best_checkpoint("loss", "min")


def test_read_from_a_directory(make_trial) -> None:
    trial = make_trial(0, losses=[3.0, 1.0], checkpoint_dir_name="checkpoint_000001", write=True)
    directory = Path(trial.path)
    for name in ("checkpoint_000001", "checkpoint_000000"):
        (directory / name).mkdir()
    (directory / "error.txt").write_text("Failure # 1\nValueError: no data\n")
    result = Result.from_path(directory)
    assert isinstance(result, Result)
    assert result.metrics["loss"] == 1.0
    assert result.config == {"lr": 0.1}
    assert result.checkpoint == Checkpoint(directory / "checkpoint_000001")
    assert [metrics.get("loss") for _, metrics in result.best_checkpoints] == [None, 1.0]
    assert isinstance(result.error, TuneError)
    assert "ValueError: no data" in str(result.error)
    assert list(result.metrics_dataframe["loss"]) == [3.0, 1.0]


def test_read_from_another_filesystem(make_trial, tmp_path) -> None:
    make_trial(0, losses=[3.0], write=True)
    result = Result.from_path(
        "search/train_00000", SubTreeFileSystem(str(tmp_path), LocalFileSystem())
    )
    assert result.metrics["loss"] == 3.0
    assert list(result.metrics_dataframe["loss"]) == [3.0]
    assert result.error is None


def test_directory_without_results(tmp_path) -> None:
    with pytest.raises(RuntimeError, match="has no directory"):
        Result.from_path(tmp_path / "nowhere")
    with pytest.raises(RuntimeError, match=r"neither result\.json nor progress\.csv"):
        Result.from_path(tmp_path)


def test_configuration_is_found_in_the_results_without_params_json(make_trial) -> None:
    trial = make_trial(0, losses=[1.0], write=True)
    (Path(trial.path) / "params.json").unlink()
    assert Result.from_path(trial.path).config == {"lr": 0.1}
    assert json.loads((Path(trial.path) / "result.json").read_text())["config"] == {"lr": 0.1}
