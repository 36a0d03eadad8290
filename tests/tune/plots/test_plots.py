"""Pictures of a search."""

import sys
from pathlib import Path

import pytest

from syncline.tune.analysis import ExperimentAnalysis
from syncline.tune.plots import (
    figures,
    learning_curves,
    parallel_coordinates,
    parameter_importance,
    plot,
)
from syncline.tune.plots.figures import distribution, study_of
from syncline.tune.result_grid import ResultGrid

optuna = pytest.importorskip("optuna")
pytest.importorskip("plotly")


@pytest.fixture
def trials(make_trial):
    """The loss depends on the learning rate only."""
    made = []
    for at in range(12):
        config = {
            "model/lr": 10.0 ** (-at / 3),
            "layers": at % 3 + 1,
            "optimizer": "adam" if at % 2 else "sgd",
            "constant": 1,
        }
        made.append(make_trial(at, config=config, losses=[2.0 + at, 1.0 + at], write=True))
    return made


def test_curve_for_each_trial_the_best_one_on_top(trials) -> None:
    figure = learning_curves(trials, metric="loss", mode="min")
    assert len(figure.data) == 12
    best = figure.data[-1]
    assert best.name == "train_1a2b_00000"
    assert (list(best.x), list(best.y)) == ([1, 2], [2.0, 1.0])
    assert best.line.width > figure.data[0].line.width


def test_only_the_best_of_many_trials_are_drawn(trials) -> None:
    figure = learning_curves(trials, metric="loss", mode="max", max_trials=3, x="time_total_s")
    assert [trace.name for trace in figure.data] == [
        "train_1a2b_00009",
        "train_1a2b_00010",
        "train_1a2b_00011",
    ]
    assert figure.layout.title.text == "loss of 3 trials, the best of 12"
    assert list(figure.data[0].x) == [0.5, 1.0]


def test_trial_without_files_is_a_point(trials) -> None:
    Path(trials[0].path, "result.json").unlink()
    assert figures.curve(trials[0], "loss", "training_iteration") == [(2, 1.0)]


def test_curves_over_something_that_nobody_reported(trials) -> None:
    with pytest.raises(ValueError, match="both 'loss' and 'epoch'"):
        learning_curves(trials, metric="loss", mode="min", x="epoch")


def test_parameters_that_vary_are_coordinates(trials) -> None:
    everything = parallel_coordinates(trials, metric="loss", mode="min").to_json()
    assert all(f'"{name}"' in everything for name in ("loss", "lr", "layers", "optimizer"))
    assert '"constant"' not in everything
    chosen = parallel_coordinates(trials, metric="loss", mode="min", parameters=["lr"]).to_json()
    assert '"lr"' in chosen
    assert '"layers"' not in chosen
    with pytest.raises(ValueError, match=r"\['model/lr'\] do not exist.*'lr'"):
        parallel_coordinates(trials, metric="loss", mode="min", parameters=["model/lr"])


def test_only_the_best_of_many_trials_are_lines(trials) -> None:
    figure = parallel_coordinates(trials, metric="loss", mode="min", max_trials=4)
    assert figure.layout.title.text == "loss of 4 trials, the best of 12"


def test_parameter_that_decides_is_important(trials) -> None:
    bars = parameter_importance(trials, metric="loss", mode="min").data[0]
    importance = dict(zip(bars.y, bars.x, strict=True))
    assert importance.keys() == {"lr", "layers", "optimizer"}
    assert importance["lr"] > 0.5


@pytest.mark.parametrize(
    "kind", ["learning_curves", "parallel_coordinates", "parameter_importance"]
)
def test_saved_picture_needs_nothing_else(trials, tmp_path, kind) -> None:
    analysis = ExperimentAnalysis(
        tmp_path / "search", trials=trials, default_metric="loss", default_mode="min"
    )
    target = tmp_path / "pictures" / "x.html"
    figure = ResultGrid(analysis).plot(kind, path=target)
    text = target.read_text(encoding="utf-8")
    assert 'src="http' not in text
    assert "Plotly.newPlot" in text
    assert len(figure.data) > 0


def test_nothing_to_show(trials, make_trial) -> None:
    with pytest.raises(ValueError, match="is unknown"):
        plot(trials, "pie", metric="loss", mode="min")
    with pytest.raises(ValueError, match="Did you mean 'loss'"):
        plot(trials, "learning_curves", metric="lss", mode="min")
    with pytest.raises(ValueError, match="Did you mean 'loss'"):
        plot(trials, "parallel_coordinates", metric="lss", mode="min")
    with pytest.raises(ValueError, match="No parameter differs"):
        plot(
            [make_trial(at, config={"a": 1}, losses=[1.0]) for at in range(3)],
            "parameter_importance",
            metric="loss",
            mode="min",
        )


def test_study_has_the_trials_with_finite_values(make_trial) -> None:
    trials = [
        make_trial(at, config={"a": at, "b": [at]}, losses=[loss])
        for at, loss in enumerate([1.0, float("nan"), 3.0])
    ]
    study = study_of(trials, "loss", "max")
    assert [trial.value for trial in study.trials] == [1.0, 3.0]
    assert study.trials[1].params == {"a": 2, "b": "[2]"}
    assert study.direction == optuna.study.StudyDirection.MAXIMIZE


def test_making_a_study_prints_nothing(make_trial, capsys) -> None:
    before = optuna.logging.get_verbosity()
    study_of([make_trial(at, losses=[1.0]) for at in range(2)], "loss", "min")
    assert capsys.readouterr() == ("", "")
    assert optuna.logging.get_verbosity() == before


def test_distributions_are_inferred() -> None:
    kinds = optuna.distributions
    assert distribution([1, 5, 3], kinds) == kinds.IntDistribution(1, 5)
    assert distribution([1, 1000], kinds) == kinds.IntDistribution(1, 1000, log=True)
    assert distribution([1, 0.5], kinds) == kinds.FloatDistribution(0.5, 1.0)
    assert distribution([1e-5, 0.1], kinds) == kinds.FloatDistribution(1e-5, 0.1, log=True)
    assert distribution([0.0, 100.0], kinds) == kinds.FloatDistribution(0.0, 100.0)
    assert distribution(["b", "a", "b"], kinds) == kinds.CategoricalDistribution(("a", "b"))
    assert distribution([True, False], kinds) == kinds.CategoricalDistribution((False, True))
    assert distribution([1, "a"], kinds) == kinds.CategoricalDistribution((1, "a"))


def test_missing_library_is_named(trials, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(ImportError, match=r"plotly.*syncline\[tune\]"):
        plot(trials, metric="loss", mode="min")
