"""The reporters that programs name, and the choice of the one that they do not."""

import io
import sys
import types

import pytest

from syncline.tune.console.live_table import LiveReporter
from syncline.tune.console.reporter import LineReporter
from syncline.tune.experiment.trial import Trial
from syncline.tune.progress_reporter import (
    CLIReporter,
    JupyterNotebookReporter,
    ProgressReporter,
    default_reporter,
)


def test_cli_reporter_prints_the_table(make_trial, capsys, clock) -> None:
    reporter = CLIReporter(
        metric_columns={"loss": "the loss", "training_iteration": "it"},
        parameter_columns=["lr"],
        clock=clock,
    )
    reporter.setup(clock.now, 5, "loss", "min")
    clock.now += 65
    reporter.report(
        [make_trial(0, losses=[0.5]), make_trial(1, status=Trial.RUNNING, losses=[0.25])],
        False,
        "Resources: 1/2 CPUs",
    )
    text = capsys.readouterr().out
    assert text.startswith("== Status ==\nCurrent time: ")
    assert "(running for 1 min 05 s)\nResources: 1/2 CPUs\n" in text
    assert (
        "Current best trial: train_1a2b_00001 with loss=0.25 after 1 iteration and"
        " parameters={'lr': 0.2}" in text
    )
    assert "Number of trials: 2/5 (1 RUNNING, 1 TERMINATED)" in text
    assert "| Trial name       | status     |  lr | the loss | it |" in text
    assert "| train_1a2b_00001 | RUNNING    | 0.2 |     0.25 |  1 |" in text


def test_rows_are_limited_until_the_end(make_trial, capsys) -> None:
    reporter = CLIReporter(max_progress_rows=3)
    trials = [make_trial(at, losses=[1.0]) for at in range(10)]
    reporter.report(trials, False)
    assert "... 7 more trials not shown (7 TERMINATED)" in capsys.readouterr().out
    reporter.report(trials, True)
    assert capsys.readouterr().out.count("| train_1a2b_") == 10


def test_tables_can_wait_for_the_end(make_trial, capsys) -> None:
    reporter = CLIReporter(print_intermediate_tables=False)
    reporter.report([make_trial(0)], False)
    assert "Trial name" not in capsys.readouterr().out
    reporter.report([make_trial(0)], True)
    assert "Trial name" in capsys.readouterr().out


def test_trials_sorted_by_metric(make_trial, capsys) -> None:
    reporter = CLIReporter(sort_by_metric=True, metric="loss", mode="min")
    reporter.setup()
    reporter.report(
        [make_trial(at, losses=[loss]) for at, loss in enumerate([3.0, 1.0, 2.0])], False
    )
    names = [
        line[2:18] for line in capsys.readouterr().out.splitlines() if line.startswith("| train")
    ]
    assert names == ["train_1a2b_00001", "train_1a2b_00002", "train_1a2b_00000"]


def test_reports_as_often_as_asked(clock) -> None:
    reporter = CLIReporter(max_report_frequency=10, clock=clock)
    assert reporter.should_report([])
    clock.now += 9
    assert not reporter.should_report([])
    assert reporter.should_report([], done=True)
    clock.now += 1
    assert reporter.should_report([])


def test_columns_can_be_added(make_trial, capsys) -> None:
    reporter = CLIReporter()
    reporter.add_metric_column("val/f1", "F1")
    reporter.add_parameter_column("lr", "rate")
    reporter.report(
        [make_trial(0, config={"lr": 0.1, "seed": 1}, losses=[1.0], val={"f1": 0.5})], False
    )
    heading = next(line for line in capsys.readouterr().out.splitlines() if "Trial name" in line)
    assert [cell.strip() for cell in heading.strip("|").split("|")] == [
        "Trial name",
        "status",
        "rate",
        "iter",
        "total time (s)",
        "F1",
    ]


def test_column_that_exists_is_not_added_again() -> None:
    reporter = CLIReporter(metric_columns=["loss"])
    with pytest.raises(ValueError, match="already has a column"):
        reporter.add_metric_column("loss")
    with pytest.raises(ValueError, match="`metric_columns` is a list: pass a dictionary"):
        reporter.add_metric_column("accuracy", "acc")
    reporter.add_metric_column("accuracy")


def test_given_columns_are_not_changed() -> None:
    columns = ["loss"]
    CLIReporter(metric_columns=columns).add_metric_column("accuracy")
    assert columns == ["loss"]


def test_metric_comes_from_one_place_only() -> None:
    reporter = CLIReporter(metric="loss", mode="min")
    with pytest.raises(ValueError, match="set them only in TuneConfig"):
        reporter.setup(0.0, 1, "accuracy", None)
    reporter.setup(0.0, 1, None, None)


def test_mode_alone_means_the_unnamed_metric(make_trial, capsys) -> None:
    reporter = CLIReporter()
    assert reporter.set_search_properties(None, "max")
    reporter.report([make_trial(at, losses=[1.0], _metric=float(at)) for at in range(3)], False)
    assert "Current best trial: train_1a2b_00002 with _metric=2" in capsys.readouterr().out


def test_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match=r"mode='up'.*\"min\" or \"max\""):
        CLIReporter(mode="up")


def test_reporter_of_a_program_says_what_it_lacks() -> None:
    class Mine(ProgressReporter):
        pass

    reporter = Mine()
    reporter.setup(0.0, 1, "loss", "min", further=1)
    with pytest.raises(NotImplementedError, match="Mine must implement"):
        reporter.should_report([])
    with pytest.raises(NotImplementedError, match="Mine must display"):
        reporter.report([], True)
    reporter.close()


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stands for a notebook: what its cell shows, one state after the other."""
    shown: list[str] = []

    class Handle:
        def update(self, content: str) -> None:
            shown.append(content)

    def display(content: str, display_id: bool) -> Handle:
        shown.append(content)
        return Handle()

    module = types.ModuleType("IPython.display")
    vars(module).update(
        HTML=lambda text: text, display=display, clear_output=lambda wait: shown.append("cleared")
    )
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    return shown


def test_notebook_reporter_updates_one_display(make_trial, notebook) -> None:
    reporter = JupyterNotebookReporter(metric_columns=["loss"])
    reporter.setup(None, 2, "loss", "min")
    reporter.report([make_trial(0, losses=[0.5])], False)
    reporter.report([make_trial(0, losses=[0.5, 0.25])], True)
    assert notebook[0] == "cleared"
    assert len(notebook) == 3
    assert '<td class="number">0.25</td>' in notebook[2]
    assert "Tune: 1 trial: 1 TERMINATED" in notebook[2]


def test_default_in_a_notebook(notebook) -> None:
    reporter = default_reporter()
    assert isinstance(reporter, JupyterNotebookReporter)
    reporter.report([], False)
    assert "cleared" not in notebook


def test_notebook_reporter_elsewhere_warns() -> None:
    with pytest.warns(UserWarning, match="no readable output outside of a notebook"):
        JupyterNotebookReporter()


def test_default_where_nobody_watches(monkeypatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert isinstance(default_reporter(), LineReporter)
    assert isinstance(default_reporter(3), LineReporter)
    monkeypatch.setattr(sys, "stderr", None)
    assert isinstance(default_reporter(), LineReporter)


def test_default_in_a_terminal(monkeypatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", stream)
    assert isinstance(default_reporter(1), LiveReporter)


def test_silent_search_has_no_reporter() -> None:
    assert default_reporter(0) is None
