"""What a trial has written down of each of its results: `result.json` (JSON Lines) or
`progress.csv` in its directory.

A line that a kill has cut short is left out. Not covered: writing them (`syncline.tune.logger`).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from io import StringIO
from typing import Any, Literal

from pyarrow import fs as pyarrow_fs

from syncline.storage import filesystem as directories
from syncline.tune.result import EXPR_PROGRESS_FILE, EXPR_RESULT_FILE, TRIAL_ID

FileType = Literal["json", "csv"]
"""Which of the two files is read first."""


def read_history(
    filesystem: pyarrow_fs.FileSystem, trial_path: str, first: FileType = "json"
) -> list[dict[str, Any]] | None:
    """A dictionary for each result of the trial, first in first; from a `progress.csv` it is flat.
    None if there is neither file.
    """
    for kind in (first, "csv" if first == "json" else "json"):
        name = EXPR_RESULT_FILE if kind == "json" else EXPR_PROGRESS_FILE
        data = directories.read_bytes(filesystem, directories.join(trial_path, name))
        if data is not None:
            text = data.decode("utf-8", "replace")
            return _from_json(text) if kind == "json" else _from_csv(text)
    return None


def _from_json(text: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


def _from_csv(text: str) -> list[dict[str, Any]]:
    lines = [line for line in csv.reader(StringIO(text)) if line]
    if not lines:
        return []
    names: Sequence[str] = lines[0]
    whole = [line for line in lines[1:] if len(line) == len(names)]
    return [
        {
            name: cell if name == TRIAL_ID else _value(cell)
            for name, cell in zip(names, line, strict=True)
        }
        for line in whole
    ]


def _value(text: str) -> Any:
    """What a cell means: a number, a truth value, nothing, or the text itself."""
    if text in ("", "None"):
        return None
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
