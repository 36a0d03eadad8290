"""A search as texts: columns, rows, the best trial, errors; and how tables fit their place."""

import html

import pytest

from syncline.core.error_frames import pack_error
from syncline.train.checkpoint import Checkpoint
from syncline.tune.console.snapshot import (
    View,
    best_text,
    closing_lines,
    errors_line,
    failure_cause,
    hidden_text,
    parameters_text,
    short_names,
    status_text,
)
from syncline.tune.console.tables import as_text, errors_table, fitting, page, trials_table
from syncline.tune.experiment.trial import Trial


def headings(snapshot):
    return [column.heading for column in snapshot.columns]


def test_familiar_columns(make_trial) -> None:
    config = {"model/lr": 0.1, "layers": 2}
    trial = make_trial(
        0, config=config, losses=[0.5], mean_accuracy=0.9, note="text", node_ip="10.0.0.1", pid=77
    )
    snapshot = View().take([trial])
    assert headings(snapshot) == [
        "Trial name",
        "status",
        "loc",
        "layers",
        "lr",
        "loss",
        "acc",
        "iter",
        "total time (s)",
    ]
    assert snapshot.rows == [
        ["train_1a2b_00000", "TERMINATED", "10.0.0.1:77", "2", "0.1", "0.5", "0.9", "1", "0.5"]
    ]


def test_location_of_a_running_trial_is_that_of_its_process(make_trial) -> None:
    trial = make_trial(0, status=Trial.RUNNING, losses=[1.0], node_ip="10.0.0.1", pid=1)
    trial.location = "10.0.0.2:99"
    assert View().take([trial]).rows[0][2] == "10.0.0.2:99"


def test_nested_values_are_read_from_the_configuration_of_now(make_trial) -> None:
    trial = make_trial(0, config={"model": {"lr": 0.3}})
    trial.evaluated_params = {"model/lr": 0.1}
    snapshot = View().take([trial])
    assert dict(zip(headings(snapshot), snapshot.rows[0], strict=True))["lr"] == "0.3"


def test_found_metrics_stay_when_other_trials_are_shown(make_trial) -> None:
    view = View(found_metrics=1)
    view.take([make_trial(0, losses=[1.0])])
    assert "loss" in headings(view.take([make_trial(1, losses=[2.0], another=1.0)]))
    assert "another" not in headings(view.take([make_trial(1, losses=[2.0], another=1.0)]))


def test_metric_of_the_search_is_the_first_one(make_trial) -> None:
    snapshot = View(metric="score", mode="max", found_metrics=2).take(
        [make_trial(0, losses=[1.0], a=1, b=2, score=3)]
    )
    assert [column.heading for column in snapshot.columns if column.kind == "metric"] == [
        "score",
        "loss",
    ]


def test_columns_that_the_program_names(make_trial) -> None:
    view = View(
        parameters={"lr": "learning rate"},
        metrics={"training_iteration": "steps", "val/f1": "F1", "nowhere": "nowhere"},
    )
    snapshot = view.take(
        [make_trial(0, config={"lr": 0.1, "other": 1}, losses=[1.0], val={"f1": 0.25})]
    )
    assert headings(snapshot) == ["Trial name", "status", "learning rate", "steps", "F1"]


def test_best_trial_with_its_parameters_and_checkpoint(make_trial, tmp_path) -> None:
    trials = [make_trial(at, losses=[loss]) for at, loss in enumerate([3.0, 1.0, 2.0])]
    trials[1].record_checkpoint(Checkpoint(tmp_path / "checkpoint_000000"), {})
    best = View(metric="loss", mode="min").take(trials, rows=1).best
    assert best is not None
    assert (
        best_text(best)
        == "train_1a2b_00001 with loss=1 after 1 iteration and parameters={'lr': 0.2}"
    )
    assert best.checkpoint == str(tmp_path / "checkpoint_000000")


def test_one_reported_metric_decides_if_only_the_mode_is_known(make_trial) -> None:
    view = View(mode="min")
    trials = [make_trial(at, losses=[loss]) for at, loss in enumerate([3.0, 1.0])]
    view.take(trials)
    best = view.take(trials).best
    assert best is not None
    assert best.trial == "train_1a2b_00001"


def test_errors_name_their_failure_cause_and_file(make_trial) -> None:
    failed, went_on = make_trial(0, status=Trial.ERROR), make_trial(1, status=Trial.RUNNING)
    failed.num_failures, failed.error_text = 1, "Traceback\nValueError: no [data]\n"
    went_on.num_failures = 3
    went_on.set_error(pack_error(RuntimeError("gone")), "")
    snapshot = View().take([failed, went_on])
    text = as_text(errors_table(snapshot.failures, snapshot.failed, None))
    assert "ValueError: no [data]" in text
    assert f"{failed.path}/error.txt" in text
    assert "3*" in text
    assert (snapshot.failed, snapshot.errored) == (2, 1)


def test_only_the_latest_errors_are_shown(make_trial) -> None:
    trials = [make_trial(at, status=Trial.ERROR) for at in range(5)]
    snapshot = View().take(trials, errors=2)
    assert [failure.trial for failure in snapshot.failures] == [
        "train_1a2b_00003",
        "train_1a2b_00004",
    ]
    assert "of which the first 3 are not shown" in as_text(
        errors_table(snapshot.failures, snapshot.failed, None)
    )
    assert View().take(trials, errors=0).failures == []


def test_narrow_places_get_errors_in_lines(make_trial) -> None:
    trial = make_trial(0, status=Trial.ERROR)
    snapshot = View().take([trial])
    lines = as_text(errors_table(snapshot.failures, snapshot.failed, 40)).splitlines()
    assert lines[1].startswith("train_1a2b_00000 (1)")


def test_hidden_trials_are_counted(make_trial) -> None:
    trials = [
        make_trial(at, status=status)
        for at, status in enumerate([Trial.RUNNING] + [Trial.TERMINATED] * 5)
    ]
    assert hidden_text(View().take(trials, rows=3)) == "... 3 more trials not shown (3 TERMINATED)"
    assert hidden_text(View().take(trials)) == ""


@pytest.mark.parametrize("width", [200, 100, 60, 40])
def test_table_is_aligned_and_fits(make_trial, width) -> None:
    config = {"model/lr": 0.001, "optimizer": "stochastic gradient descent", "layers": 3}
    trials = [
        make_trial(
            at, config=config, losses=[10.0**-at], accuracy=0.5, node_ip="127.0.0.1", pid=4242
        )
        for at in range(4)
    ]
    lines = as_text(trials_table(View().take(trials), width), width).splitlines()
    table = [line for line in lines if line[0] in "╭│├╰"]
    assert len({len(line) for line in table}) == 1
    assert max(map(len, lines)) <= width
    assert all("TERMINATED" in line for line in table[3:-1])


def test_narrow_table_says_which_columns_it_leaves_out(make_trial) -> None:
    trials = [make_trial(0, losses=[1.0], accuracy=0.5, node_ip="127.0.0.1", pid=4242)]
    text = as_text(trials_table(View().take(trials), 60), 60)
    assert "Columns that do not fit: loc" in text
    assert "loss" in text


def test_first_metric_is_given_up_after_everything_else_but_the_name(make_trial) -> None:
    snapshot = View(metric="loss").take([make_trial(0, losses=[1.0], accuracy=0.5)])
    widths = [10] * len(snapshot.columns)
    kept = fitting(snapshot.columns, widths, 42)
    assert [snapshot.columns[at].heading for at in kept] == ["Trial name", "status", "loss"]
    assert fitting(snapshot.columns, widths, 1) == [0]


def test_wide_characters_do_not_break_alignment(make_trial) -> None:
    snapshot = View().take(
        [make_trial(0, config={"name": "日本語"}), make_trial(1, config={"name": "x"})]
    )
    rows = [line for line in as_text(trials_table(snapshot, None)).splitlines() if "train_" in line]
    assert len(rows[0]) == len(rows[1]) - 3  # three characters of two columns


def test_html_is_escaped(make_trial) -> None:
    trial = make_trial(0, config={"name": "<script>"}, status=Trial.ERROR)
    trial.error_text = "ValueError: <b>"
    text = page(View().take([trial]), ["a < b"])
    assert "<script>" not in text
    assert html.escape("<script>") in text
    assert "ValueError: &lt;b&gt;" in text
    assert "a &lt; b" in text


def test_summary_lines(make_trial) -> None:
    trials = [
        make_trial(0, losses=[1.0]),
        make_trial(1, status=Trial.ERROR),
        make_trial(2, status=Trial.ERROR),
    ]
    snapshot = View(metric="loss", mode="min").take(trials)
    lines = closing_lines(snapshot, 3.21)
    assert lines[0] == "Tune: 3 trials: 1 TERMINATED, 2 ERROR, after 3.2 s."
    assert lines[1].startswith("Best trial: train_1a2b_00000 with loss=1 ")
    assert (errors_line(snapshot) or "").endswith(
        f"(1 more trial failed); see {trials[2].path}/error.txt"
    )
    assert errors_line(View().take(trials[:1])) is None


def test_expected_number_is_said_until_it_is_reached(make_trial) -> None:
    snapshot = View().take([make_trial(0)])
    assert status_text(snapshot, 10) == "1 of 10 trials: 1 TERMINATED"
    assert (
        status_text(snapshot, 1)
        == status_text(snapshot, float("inf"))
        == status_text(snapshot, None)
        == "1 trial: 1 TERMINATED"
    )
    assert status_text(View().take([]), None) == "0 trials"


def test_names_are_cut_to_what_tells_them_apart() -> None:
    assert short_names(["model/lr", "optimizer/lr", "model/layers", "seed"]) == {
        "model/lr": "model/lr",
        "optimizer/lr": "optimizer/lr",
        "model/layers": "layers",
        "seed": "seed",
    }
    assert short_names(["a/b/lr", "c/d/lr"]) == {"a/b/lr": "b/lr", "c/d/lr": "d/lr"}


def test_name_that_is_the_end_of_another_stays_whole() -> None:
    assert short_names(["lr", "model/lr"]) == {"lr": "lr", "model/lr": "model/lr"}


def test_failure_cause_of_an_error() -> None:
    text = "Traceback (most recent call last):\n  File …\nValueError: no data:\n  all empty\n"
    assert failure_cause(None, text) == "ValueError: no data:"
    assert failure_cause(ValueError("no data")) == "ValueError: no data"
    assert failure_cause(None) == "unknown reason"


def test_parameters_in_one_line() -> None:
    assert (
        parameters_text({"lr": 0.01234567, "name": "x" * 50}, 10)
        == "{'lr': 0.0123457, 'name': ...xxxxxx'}"
    )
