"""The pictures. Each function takes the trials of a search and returns a plotly figure."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from syncline.train import metric_values
from syncline.train.console.formatting import text_of
from syncline.tune.console.snapshot import parameters_text
from syncline.tune.experiment.trial import Trial
from syncline.tune.plots.libraries import load
from syncline.tune.plots.study import study_of
from syncline.tune.result import TRAINING_ITERATION
from syncline.tune.trial_history import no_best_trial, read_history

if TYPE_CHECKING:
    import plotly.graph_objects

MAX_CURVES = 100
"""More curves than these nobody can tell apart, and each costs the reading of a file."""
MAX_LINES = 300
"""The same for lines through coordinates, which take a browser long to draw."""


def learning_curves(
    trials: Sequence[Trial],
    *,
    metric: str,
    mode: str,
    x: str = TRAINING_ITERATION,
    max_trials: int = MAX_CURVES,
) -> plotly.graph_objects.Figure:
    """`metric` over `x` for each trial, the better the brighter, the best one thick.

    Args:
        trials: Those of a search.
        metric: What is drawn.
        mode: "min" or "max".
        x: Over what: a key of results, such as `time_total_s`.
        max_trials: Of more trials, the best ones are drawn.

    Raises:
        ImportError: plotly is not installed.
        ValueError: No trial has reported both.
    """
    graph_objects, colours = load("plotly.graph_objects"), load("plotly.colors")
    shown = best_trials(trials, metric, mode, max_trials)
    shades = colours.sample_colorscale(
        "Viridis", [1 - at / max(1, len(shown) - 1) for at in range(len(shown))]
    )
    figure = graph_objects.Figure()
    for at in range(len(shown) - 1, -1, -1):  # the best is drawn last, above the others
        points = curve(shown[at], metric, x)
        figure.add_trace(
            _line(
                graph_objects,
                shown[at],
                points,
                metric,
                colour=shades[at],
                width=3.5 if at == 0 else 1.2,
            )
        )
    if not any(len(trace.x) for trace in figure.data):
        raise ValueError(
            f"No trial has a result with both {metric!r} and {x!r} in its directory, so there is no curve to draw."
        )
    title = f"{metric} of {len(shown)} trials" + (
        f", the best of {len(trials)}" if len(shown) < len(trials) else ""
    )
    figure.update_layout(
        title=title,
        xaxis_title=x,
        yaxis_title=metric,
        legend_title="best first",
        legend_traceorder="reversed",
    )
    return figure


def parallel_coordinates(
    trials: Sequence[Trial],
    *,
    metric: str,
    mode: str,
    parameters: Sequence[str] | None = None,
    max_trials: int = MAX_LINES,
) -> plotly.graph_objects.Figure:
    """A line for each trial through its parameters to its latest `metric`.

    Args:
        trials: Those of a search.
        metric: What they are coloured by.
        mode: "min" or "max".
        parameters: Names of those to show, the last part of a nested one; all that vary if not
            given.
        max_trials: Of more trials, the best ones are drawn.

    Raises:
        ImportError: plotly or Optuna is not installed.
        ValueError: No trial has a value of the metric, no parameter varies, or there is none of
            that name.
    """
    shown = best_trials(trials, metric, mode, max_trials)
    study = study_of(shown, metric, mode)
    visualisation = load("optuna.visualization")
    load("plotly")
    figure: plotly.graph_objects.Figure = visualisation.plot_parallel_coordinate(
        study, params=_checked(study, parameters), target_name=metric
    )
    if len(shown) < len(trials):
        figure.update_layout(title=f"{metric} of {len(shown)} trials, the best of {len(trials)}")
    return figure


def parameter_importance(
    trials: Sequence[Trial], *, metric: str, mode: str, parameters: Sequence[str] | None = None
) -> plotly.graph_objects.Figure:
    """How much each parameter decides whether a trial is among the better ones: PED-ANOVA
    (Watanabe, Bansal and Hutter, 2023).

    Args:
        trials: Those of a search; only parameters that all of them have are compared.
        metric: Their latest value is what counts.
        mode: "min" or "max".
        parameters: Names of those to compare; all that vary if not given.

    Raises:
        ImportError: plotly or Optuna is not installed.
        ValueError: No trial has a value of the metric, no parameter varies, or there is none of
            that name.
    """
    study = study_of(trials, metric, mode)
    visualisation, importance = load("optuna.visualization"), load("optuna.importance")
    load("plotly")
    evaluator = importance.PedAnovaImportanceEvaluator()
    return visualisation.plot_param_importances(
        study, evaluator=evaluator, params=_checked(study, parameters), target_name=metric
    )


def best_trials(trials: Sequence[Trial], metric: str, mode: str, count: int) -> list[Trial]:
    """At most `count` trials by their latest value, the best first.

    Raises:
        ValueError: No trial has one.
    """
    scores = [
        metric_values.score(trial.last_result, metric, "max" if mode == "max" else "min")
        for trial in trials
    ]
    ranking = [(score, -position) for position, score in enumerate(scores) if score is not None]
    if not ranking:
        raise ValueError(no_best_trial(metric, trials, filter_nan_and_inf=False))
    return [trials[-position] for _, position in heapq.nlargest(count, ranking)]


def curve(trial: Trial, metric: str, x: str) -> list[tuple[Any, float]]:
    """The trial's results that have both, as points."""
    rows = read_history(trial.storage.storage_filesystem, trial.path) or [trial.last_result]
    points = []
    for row in rows:
        place, value = metric_values.lookup(row, x), metric_values.score(row, metric, "max")
        if place is not None and value is not None:
            points.append((place, value))
    return points


def _line(
    graph_objects: Any,
    trial: Trial,
    points: Sequence[tuple[Any, float]],
    metric: str,
    *,
    colour: str,
    width: float,
) -> Any:
    last = text_of(metric_values.lookup(trial.last_result, metric))
    about = f"{trial}<br>{parameters_text(trial.evaluated_params)}<br>last {metric}: {last}"
    return graph_objects.Scatter(
        x=[place for place, _ in points],
        y=[value for _, value in points],
        mode="lines+markers" if len(points) < 3 else "lines",
        name=str(trial),
        line={"color": colour, "width": width},
        hovertemplate=f"%{{x}}: %{{y:.6g}}<br>{about}<extra></extra>",
    )


def _checked(study: Any, parameters: Sequence[str] | None) -> list[str] | None:
    if parameters is None:
        return None
    there = sorted({name for trial in study.trials for name in trial.params})
    missing = [name for name in parameters if name not in there]
    if missing:
        raise ValueError(
            f"parameters={list(parameters)}: {missing} do not vary in this search, or are none; there are {there}."
        )
    return list(parameters)
