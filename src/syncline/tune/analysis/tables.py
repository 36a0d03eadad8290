"""Results as pandas tables: nested values in columns `a/b`, the configuration in columns
`config/…`.

pandas takes a third of a second to import, so it is imported when the first table is made.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from syncline.train import metric_values
from syncline.tune.experiment.trial import Trial
from syncline.tune.result import CONFIG, TRIAL_ID

if TYPE_CHECKING:
    import pandas


def table(rows: Iterable[Mapping[str, Any]], *, index: str | None = None) -> pandas.DataFrame:
    """A row for each dictionary, flattened; `index` names the column that becomes the index."""
    pandas_module = importlib.import_module("pandas")
    made: pandas.DataFrame = pandas_module.DataFrame([metric_values.flatten(row) for row in rows])
    if index is not None and index in made.columns:
        made = made.set_index(index)
    return made


def with_config(result: Mapping[str, Any], trial: Trial) -> dict[str, Any]:
    """A result, which may be empty, with the trial's id and, last, its configuration as it is
    now.
    """
    return {
        **{key: value for key, value in result.items() if key != CONFIG},
        TRIAL_ID: trial.trial_id,
        CONFIG: trial.config,
    }


def best_row(rows: Sequence[Mapping[str, Any]], metric: str, mode: str) -> Mapping[str, Any] | None:
    """The result with the lowest or highest `metric`, the first of equal ones; None if none has a
    number there.
    """
    best, high = None, 0.0
    for row in rows:
        value = metric_values.score(row, metric, "max" if mode == "max" else "min")
        if value is not None and (best is None or value > high):
            best, high = row, value
    return best


class Frames(Mapping[str, "pandas.DataFrame"]):
    """A table for each trial, by its id, read when it is first asked for.

    Args:
        trial_ids: The keys.
        read: Reads the table of a trial.
    """

    def __init__(self, trial_ids: Iterable[str], read: Callable[[str], pandas.DataFrame]) -> None:
        self._tables: dict[str, pandas.DataFrame | None] = dict.fromkeys(trial_ids)
        self._read = read

    def __getitem__(self, trial_id: str) -> pandas.DataFrame:
        frame = self._tables[trial_id]
        if frame is None:
            frame = self._tables[trial_id] = self._read(trial_id)
        return frame

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)
