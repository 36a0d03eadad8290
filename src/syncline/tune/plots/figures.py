"""Figures: each public function takes the trials of a search and returns a plotly figure.

Learning curves are drawn here, the other figures by Optuna from a study of the trials. The study
infers the distribution of each parameter from its values, because trials need not come from a
search space. Parameters that are neither numbers nor text are shown as text, and constant
parameters are omitted.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from syncline.optional import load
from syncline.train import metric_values
from syncline.train.console.formatting import text_of
from syncline.tune.console.snapshot import parameters_text, short_names
from syncline.tune.experiment.trial import Trial
from syncline.tune.result import TRAINING_ITERATION
from syncline.tune.search.optuna.optuna_search import quiet
from syncline.tune.trial_history import no_best_trial, read_history

if TYPE_CHECKING:
    import plotly.graph_objects

MAX_CURVES = 100
"""Default limit of curves: more are hard to distinguish, and each needs a file to be read."""
MAX_LINES = 300
"""Default limit of lines in parallel coordinates, which browsers draw slowly."""
LOGARITHMIC_SPAN = 100.0
"""Ratio of the largest to the smallest positive value from which an axis is logarithmic."""

Library: TypeAlias = Any
"""Modules and objects of plotly and Optuna, which are optional and untyped."""


def _load(module: str) -> Library:
    return load(module, purpose="a figure of a search", install="syncline[tune]")


def learning_curves(
    trials: Sequence[Trial],
    *,
    metric: str,
    mode: str,
    x: str = TRAINING_ITERATION,
    max_trials: int = MAX_CURVES,
) -> plotly.graph_objects.Figure:
    """Draw `metric` over `x` for each trial; better trials are brighter, and the best is thick.

    Args:
        trials: Trials of a search.
        metric: Key of a number in results.
        mode: "min" or "max".
        x: Key of results for the horizontal axis, such as `time_total_s`.
        max_trials: Maximum number of trials; the best are drawn.

    Raises:
        ImportError: plotly is not installed.
        ValueError: No trial reported both.
    """
    graph_objects, colours = _load("plotly.graph_objects"), _load("plotly.colors")
    shown = best_trials(trials, metric, mode, max_trials)
    shades = colours.sample_colorscale(
        "Viridis", [1 - at / max(1, len(shown) - 1) for at in range(len(shown))]
    )
    figure = graph_objects.Figure()
    for at in range(len(shown) - 1, -1, -1):  # draw the best last, above the others
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
            f"No trial's directory has a result with both {metric!r} and {x!r}: "
            "choose keys that the trials report."
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
    """Draw a line for each trial through its parameters to its last `metric`.

    Args:
        trials: Trials of a search.
        metric: Metric that determines the colour.
        mode: "min" or "max".
        parameters: Names of the parameters to show, the last part of nested ones; all that vary by
            default.
        max_trials: Maximum number of trials; the best are drawn.

    Raises:
        ImportError: plotly or Optuna is not installed.
        ValueError: No trial has a value of the metric, no parameter varies, or a given parameter
            does not.
    """
    shown = best_trials(trials, metric, mode, max_trials)
    study = study_of(shown, metric, mode)
    visualisation = _load("optuna.visualization")
    _load("plotly")
    figure: plotly.graph_objects.Figure = visualisation.plot_parallel_coordinate(
        study, params=_checked(study, parameters), target_name=metric
    )
    if len(shown) < len(trials):
        figure.update_layout(title=f"{metric} of {len(shown)} trials, the best of {len(trials)}")
    return figure


def parameter_importance(
    trials: Sequence[Trial], *, metric: str, mode: str, parameters: Sequence[str] | None = None
) -> plotly.graph_objects.Figure:
    """Draw how much each parameter determines whether a trial is among the better ones: PED-ANOVA
    (Watanabe, Bansal and Hutter, 2023).

    Args:
        trials: Trials of a search; only parameters of all trials are compared.
        metric: Metric whose last value is compared.
        mode: "min" or "max".
        parameters: Names of the parameters to compare; all that vary by default.

    Raises:
        ImportError: plotly or Optuna is not installed.
        ValueError: No trial has a value of the metric, no parameter varies, or a given parameter
            does not.
    """
    study = study_of(trials, metric, mode)
    visualisation, importance = _load("optuna.visualization"), _load("optuna.importance")
    _load("plotly")
    evaluator = importance.PedAnovaImportanceEvaluator()
    return visualisation.plot_param_importances(
        study, evaluator=evaluator, params=_checked(study, parameters), target_name=metric
    )


def best_trials(trials: Sequence[Trial], metric: str, mode: str, count: int) -> list[Trial]:
    """Return at most `count` trials by their last value, the best first.

    Raises:
        ValueError: No trial has a value.
    """
    scores = [
        metric_values.score(trial.last_result, metric, "max" if mode == "max" else "min")
        for trial in trials
    ]
    ranking = [(score, -position) for position, score in enumerate(scores) if score is not None]
    if not ranking:
        raise ValueError(no_best_trial(metric, trials, filter_nan_and_inf=False))
    return [trials[-position] for _, position in heapq.nlargest(count, ranking)]


def curve(trial: Trial, metric: str, x: str) -> list[tuple[object, float]]:
    """Return points (x, metric) of the trial's results that have both."""
    rows = read_history(trial.storage.storage_filesystem, trial.path) or [trial.last_result]
    points = []
    for row in rows:
        position, value = metric_values.lookup(row, x), metric_values.score(row, metric, "max")
        if position is not None and value is not None:
            points.append((position, value))
    return points


def _line(
    graph_objects: Library,
    trial: Trial,
    points: Sequence[tuple[object, float]],
    metric: str,
    *,
    colour: str,
    width: float,
) -> Library:
    last = text_of(metric_values.lookup(trial.last_result, metric))
    about = f"{trial}<br>{parameters_text(trial.evaluated_params)}<br>last {metric}: {last}"
    return graph_objects.Scatter(
        x=[position for position, _ in points],
        y=[value for _, value in points],
        mode="lines+markers" if len(points) < 3 else "lines",
        name=str(trial),
        line={"color": colour, "width": width},
        hovertemplate=f"%{{x}}: %{{y:.6g}}<br>{about}<extra></extra>",
    )


def _checked(study: Library, parameters: Sequence[str] | None) -> list[str] | None:
    if parameters is None:
        return None
    there = sorted({name for trial in study.trials for name in trial.params})
    missing = [name for name in parameters if name not in there]
    if missing:
        raise ValueError(
            f"parameters={list(parameters)}: {missing} do not exist or do not vary in this search. "
            f"Choose from {there}."
        )
    return list(parameters)


# -- a study for Optuna


def study_of(trials: Sequence[Trial], metric: str, mode: str) -> Library:
    """Return an `optuna.study.Study` with a completed trial per trial with a finite last value.

    Raises:
        ValueError: No trial has a finite value, or no parameter varies.
    """
    optuna = _load("optuna")
    scored = [(trial, value) for trial in trials if (value := _value(trial, metric)) is not None]
    if not scored:
        raise ValueError(no_best_trial(metric, trials, filter_nan_and_inf=True))
    names = short_names(sorted({key for trial, _ in scored for key in trial.evaluated_params}))
    held = {
        key: [
            plain(trial.evaluated_params[key])
            for trial, _ in scored
            if key in trial.evaluated_params
        ]
        for key in names
    }
    varied = {key: values for key, values in held.items() if len(set(values)) > 1}
    if not varied:
        raise ValueError(
            f"No parameter differs between the {len(scored)} trials that report {metric!r}: "
            "search at least one parameter."
        )
    distributions = {
        key: distribution(values, optuna.distributions) for key, values in varied.items()
    }
    with quiet(optuna):
        study = optuna.create_study(
            direction="maximize" if mode == "max" else "minimize", study_name=metric
        )
    study.add_trials(
        [_frozen(optuna, trial, value, names, distributions) for trial, value in scored]
    )
    return study


def distribution(values: Sequence[bool | int | float | str], distributions: Library) -> Library:
    """Return Optuna's narrowest distribution that contains all `values`; at least two differ."""
    numbers = [value for value in values if not isinstance(value, (bool, str))]
    if len(numbers) < len(values):
        return distributions.CategoricalDistribution(
            sorted(set(values), key=lambda value: (type(value).__name__, value))
        )
    low, high = min(numbers), max(numbers)
    logarithmic = low > 0 and high / low >= LOGARITHMIC_SPAN
    if all(isinstance(value, int) for value in numbers):
        return distributions.IntDistribution(low, high, log=logarithmic)
    return distributions.FloatDistribution(float(low), float(high), log=logarithmic)


def plain(value: object) -> bool | int | float | str:
    """Convert a parameter to a type that Optuna accepts."""
    if isinstance(value, (bool, str, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)


def _frozen(
    optuna: Library,
    trial: Trial,
    value: float,
    names: Mapping[str, str],
    distributions: Mapping[str, Library],
) -> Library:
    keys = [key for key in trial.evaluated_params if key in distributions]
    parameters = {names[key]: plain(trial.evaluated_params[key]) for key in keys}
    own = {names[key]: distributions[key] for key in keys}
    return optuna.trial.create_trial(
        params=parameters, distributions=own, value=value, user_attrs={"trial": str(trial)}
    )


def _value(trial: Trial, metric: str) -> float | None:
    value = metric_values.score(trial.last_result, metric, "max")
    return value if value is not None and math.isfinite(value) else None
