"""Figures of a search, drawn by plotly: `plot` and, in `figures`, a function for each kind.

The optional libraries plotly and Optuna are imported with the first figure. Not covered: reading
trials from a directory (`syncline.tune.ExperimentAnalysis`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from syncline import settings
from syncline.tune.experiment.trial import Trial
from syncline.tune.plots.figures import learning_curves, parallel_coordinates, parameter_importance

if TYPE_CHECKING:
    import plotly.graph_objects

__all__ = ["Kind", "learning_curves", "parallel_coordinates", "parameter_importance", "plot"]

Kind = Literal["learning_curves", "parallel_coordinates", "parameter_importance"]
"""Kind of a figure."""

_DRAW: Mapping[str, Callable[..., plotly.graph_objects.Figure]] = {
    "learning_curves": learning_curves,
    "parallel_coordinates": parallel_coordinates,
    "parameter_importance": parameter_importance,
}


def plot(
    trials: Sequence[Trial],
    kind: Kind = "learning_curves",
    *,
    metric: str,
    mode: str,
    path: str | os.PathLike[str] | None = None,
    **options: object,
) -> plotly.graph_objects.Figure:
    """Draw a figure of the trials. A notebook displays the returned figure; elsewhere,
    `figure.show()` opens a browser.

    Args:
        trials: Trials of a search, such as `analysis.trials`.
        kind: Kind of the figure.
        metric: Key of a number in results, `a/b` if nested.
        mode: "min" or "max".
        path: Local path to save the figure to, as a self-contained HTML file.
        options: Arguments of the function for `kind`.

    Raises:
        ImportError: A library is not installed.
        ValueError: `kind` is unknown, or there is no data.
    """
    if kind not in _DRAW:
        raise ValueError(f"plot(kind={kind!r}) is unknown: choose one of {list(_DRAW)}.")
    figure: plotly.graph_objects.Figure = _DRAW[kind](trials, metric=metric, mode=mode, **options)
    if path is not None:
        target = settings.local_path(path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        figure.write_html(target, include_plotlyjs=True, full_html=True)
    return figure
