"""`ExperimentAnalysis` over trials."""

import logging
from pathlib import Path

import pytest

from syncline.train.checkpoint import Checkpoint
from syncline.tune.analysis import ExperimentAnalysis
from syncline.tune.experiment.trial import Trial


@pytest.fixture
def trials(make_trial) -> list[Trial]:
    return [
        make_trial(at, losses=[loss, 2 * loss], write=True)
        for at, loss in enumerate([3.0, 1.0, 2.0])
    ]


@pytest.fixture
def analysis(trials, tmp_path) -> ExperimentAnalysis:
    return ExperimentAnalysis(
        tmp_path / "search", trials=trials, default_metric="loss", default_mode="min"
    )


def test_best_of_everything(analysis, trials) -> None:
    best = trials[1]
    assert analysis.best_trial is best
    assert analysis.best_config == best.config
    assert analysis.best_result == best.last_result
    assert analysis.best_logdir == best.path
    assert list(analysis.best_dataframe["loss"]) == [1.0, 2.0]
    assert analysis.best_result_df.loc[best.trial_id, "config/lr"] == best.config["lr"]
    assert analysis.get_best_trial("loss", "max") is trials[0]
    assert analysis.get_best_config("loss", "max") == trials[0].config
    assert analysis.get_best_logdir("loss", "max", "all") == trials[0].path


def test_all_results(analysis, trials, make_trial) -> None:
    assert analysis.results == {trial.trial_id: trial.last_result for trial in trials}
    table = ExperimentAnalysis(analysis.experiment_path, trials=[*trials, make_trial(3)]).results_df
    assert list(table.index) == [*(trial.trial_id for trial in trials), "1a2b_00003"]
    assert table.loc["1a2b_00003", "config/lr"] == pytest.approx(0.4)
    assert analysis.get_all_configs() == {trial.trial_id: trial.config for trial in trials}
    assert analysis.get_all_configs(prefix=True)[trials[0].trial_id] == {"config/lr": 0.1}
    assert analysis.stats() == {"trials": 3, "TERMINATED": 3, "time_total_s": 3.0}


def test_one_result_of_each_trial(analysis, trials) -> None:
    assert list(analysis.dataframe()["loss"]) == [6.0, 2.0, 4.0]
    table = analysis.dataframe("loss", "min")
    assert list(table["loss"]) == [3.0, 1.0, 2.0]
    assert list(table["logdir"]) == [trial.path for trial in trials]
    assert list(table["config/lr"]) == [trial.config["lr"] for trial in trials]
    with pytest.raises(ValueError, match="give `metric`"):
        analysis.dataframe(mode="min")


def test_tables_of_trials_are_read_when_asked_for(analysis, trials) -> None:
    Path(trials[2].path, "result.json").unlink()
    frames = analysis.trial_dataframes
    assert list(frames) == [trial.trial_id for trial in trials]
    assert len(frames) == 3
    assert list(frames[trials[0].trial_id]["loss"]) == [3.0, 6.0]
    assert frames[trials[0].trial_id] is frames[trials[0].trial_id]
    assert frames[trials[2].trial_id].empty
    with pytest.raises(KeyError):
        frames["nobody"]


def test_file_type_decides_where_there_are_both(analysis, trials) -> None:
    Path(trials[0].path, "progress.csv").write_text("loss\n7\n")
    assert analysis.set_filetype("csv")
    assert list(analysis.trial_dataframes[trials[0].trial_id]["loss"]) == [7]
    with pytest.raises(ValueError, match='give "json" or "csv"'):
        analysis.set_filetype("xml")


def test_checkpoints(analysis, trials, tmp_path) -> None:
    for at, loss in enumerate([2.0, 1.0, 3.0]):
        trials[1].record_checkpoint(
            Checkpoint(tmp_path / f"checkpoint_{at:06d}"), {"loss": loss, "training_iteration": at}
        )
    assert analysis.best_checkpoint == Checkpoint(tmp_path / "checkpoint_000001")
    for trial in (trials[1], trials[1].trial_id, str(trials[1]), trials[1].path + "/"):
        assert analysis.get_best_checkpoint(trial, "loss", "max") == Checkpoint(
            tmp_path / "checkpoint_000002"
        )
    assert analysis.get_last_checkpoint() == analysis.get_last_checkpoint(
        trials[0]
    )  # the first of equal iterations has none
    assert analysis.get_last_checkpoint(trials[1]) == Checkpoint(tmp_path / "checkpoint_000002")
    assert analysis.get_trial_checkpoints_paths(trials[1])[0] == (
        str(tmp_path / "checkpoint_000000"),
        2.0,
    )
    assert analysis.get_trial_checkpoints_paths(trials[1], "training_iteration")[2][1] == 2
    with pytest.raises(ValueError, match="is not the id, name or directory"):
        analysis.get_best_checkpoint("nobody")


def test_no_checkpoint_is_a_warning(analysis, trials, caplog) -> None:
    with caplog.at_level(logging.WARNING, "syncline"):
        assert analysis.get_best_checkpoint(trials[0]) is None
    assert "has no best checkpoint" in caplog.text


def test_unknown_metric(analysis, trials, caplog) -> None:
    with caplog.at_level(logging.WARNING, "syncline"):
        assert analysis.get_best_trial("lss", "min") is None
        assert analysis.get_best_config("lss", "min") is None
    assert "Did you mean 'loss'?" in caplog.text
    with pytest.raises(ValueError, match="Did you mean 'loss'"):
        _ = ExperimentAnalysis(
            "x", trials=trials, default_metric="lss", default_mode="min"
        ).best_trial


def test_search_without_metric_or_mode(trials) -> None:
    with pytest.raises(ValueError, match="give `metric`"):
        _ = ExperimentAnalysis("x", trials=trials).best_config
    with pytest.raises(ValueError, match="give `mode="):
        ExperimentAnalysis("x", trials=trials, default_metric="loss").get_best_trial()
    with pytest.raises(ValueError, match="mode='up' is unknown"):
        ExperimentAnalysis("x", trials=trials, default_mode="up")
    assert ExperimentAnalysis("x", trials=trials, default_mode="max").default_metric == "_metric"


def test_directory_without_a_search(tmp_path) -> None:
    with pytest.raises(FileNotFoundError):
        ExperimentAnalysis(tmp_path)


def test_printing(analysis, tmp_path) -> None:
    assert (
        repr(analysis)
        == f"ExperimentAnalysis(3 trials in {str(tmp_path / 'search')!r}, metric='loss',"
        " mode='min')"
    )
