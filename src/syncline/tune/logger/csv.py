"""`CSVLoggerCallback`: progress.csv in each trial's directory."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from syncline.tune.logger.logger import RowLogger, flat_result, size_until_iteration
from syncline.tune.result import CONFIG, EXPR_PROGRESS_FILE, TRAINING_ITERATION, Metrics

if TYPE_CHECKING:
    from syncline.tune.experiment.trial import Trial

_LEFT_OUT = frozenset({CONFIG})


class CSVLoggerCallback(RowLogger):
    """Writes each result without the configuration as a row of progress.csv; nested values get
    columns like `a/b`.

    The columns are those of the first result. If a later result has more, the file is rewritten
    with the new columns at the end; they are empty in earlier rows.
    """

    file_name = EXPR_PROGRESS_FILE

    def __init__(self) -> None:
        super().__init__()
        self._columns: dict[str, list[str]] = {}

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        super().log_trial_end(trial, failed)
        self._columns.pop(trial.trial_id, None)

    def on_experiment_end(self, trials: list[Trial], **info: object) -> None:
        super().on_experiment_end(trials, **info)
        self._columns.clear()

    def _row(self, trial: Trial, result: Metrics) -> bytes:
        flat = flat_result(result, _LEFT_OUT)
        columns = self._columns[trial.trial_id]
        if columns != list(flat):
            self._widen(trial, columns, [key for key in flat if key not in columns])
        return _line([flat.get(key, "") for key in columns])

    def _widen(self, trial: Trial, columns: list[str], further: list[str]) -> None:
        if not further:
            return
        is_new = not columns
        columns += further
        if is_new:
            self._files.append(trial, _line(columns))
        else:
            self._files.rewrite(trial, lambda content: _with_columns(content, columns))

    def _bytes_to_keep(self, trial: Trial, content: bytes) -> int:
        rows = list(_rows(content))
        columns = rows[0][0] if rows else []
        position = columns.index(TRAINING_ITERATION) if TRAINING_ITERATION in columns else None
        size = size_until_iteration(
            ((_iteration(row, position), end) for row, end in rows[1:]), trial.restored_iteration
        )
        if not size:  # a header alone would fix the columns of a trial that starts from scratch
            columns = []
        self._columns[trial.trial_id] = columns
        return size


def _line(row: Sequence[object]) -> bytes:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(row)
    return line.getvalue().encode()


def _rows(content: bytes) -> Iterator[tuple[list[str], int]]:
    """Yield each row and its end position, up to the first incomplete row."""
    end = 0

    def lines() -> Iterator[str]:
        nonlocal end
        for line in content[: content.rfind(b"\n") + 1].splitlines(keepends=True):
            end += len(line)
            yield line.decode()

    for row in csv.reader(lines()):
        yield row, end


def _iteration(row: list[str], position: int | None) -> int | None:
    if position is None or position >= len(row):
        return None
    try:
        return int(float(row[position]))
    except ValueError:
        return None


def _with_columns(content: bytes, columns: list[str]) -> bytes:
    """Return the table with a new header; missing values in earlier rows stay empty."""
    rows = [row + [""] * (len(columns) - len(row)) for row, _ in _rows(content)]
    return b"".join(map(_line, [columns, *rows[1:]]))
