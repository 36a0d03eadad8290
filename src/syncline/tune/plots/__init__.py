"""Pictures of a search, drawn by plotly: `plot`, and a function for each kind.

`study` makes an Optuna study of the trials, `figures` draws: the learning curves itself, the other
kinds with Optuna's visualisation. Neither library is imported before the first picture. Not
covered: reading trials from a directory (`syncline.tune.ExperimentAnalysis`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from syncline import settings
from syncline.tune.experiment.trial import Trial
from syncline.tune.plots.figures import learning_curves, parallel_coordinates, parameter_importance

if TYPE_CHECKING:
    import plotly.graph_objects

__all__ = ["Kind", "learning_curves", "parallel_coordinates", "parameter_importance", "plot"]

Kind = Literal["learning_curves", "parallel_coordinates", "parameter_importance"]
"""What a picture shows."""

_DRAW: Mapping[str, Callable[..., Any]] = {
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
    **options: Any,
) -> plotly.graph_objects.Figure:
    """Draw a picture of the trials. In a notebook, the figure that is returned shows itself;
    `figure.show()` opens a browser elsewhere.

    Args:
        trials: Those of a search, `analysis.trials`.
        kind: What it shows.
        metric: The key of a number in results, `a/b` if nested.
        mode: "min" or "max".
        path: Also save it on this machine, as an HTML file that needs nothing else, the network
            neither.
        options: Of the function of that kind.

    Raises:
        ImportError: A library is not installed; the message says which one and how to get it.
        ValueError: `kind` is unknown, or there is nothing to show.
    """
    if kind not in _DRAW:
        raise ValueError(f"plot(kind={kind!r}): no such picture; there are {list(_DRAW)}.")
    figure: plotly.graph_objects.Figure = _DRAW[kind](trials, metric=metric, mode=mode, **options)
    if path is not None:
        target = settings.local_path(path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        figure.write_html(target, include_plotlyjs=True, full_html=True)
    return figure
