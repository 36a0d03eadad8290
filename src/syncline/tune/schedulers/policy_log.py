"""`PolicyLog`: which configuration population based training gave to whom, and when, as lines of
files; `read_policy` reads them.

Each line is a JSON list: tag of the trial that was changed, tag of its donor, iteration of the
trial, iteration of the donor's checkpoint, configuration of the donor, new configuration.
`pbt_global.txt` has all lines in order. `pbt_policy_<trial id>.txt` has, last, what led to the
trial's present weights: its donor's own history and then the step to the trial itself.

The lines are only ever added. Where an older history stands before the present one, a line without
tags divides them; readers stop there, because they follow the tags backwards. Not covered: writing
the files (the controller's driver).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from syncline.runs import json_values

GLOBAL_FILE = "pbt_global.txt"
_DIVIDER = json.dumps([None, None, 0, 0, {}, {}])


def policy_file(trial_id: str) -> str:
    """The name of a trial's file."""
    return f"pbt_policy_{trial_id}.txt"


class PolicyLog:
    """Lines that wait to be written."""

    def __init__(self) -> None:
        self._histories: dict[str, tuple[str, ...]] = {}
        """By trial, the lines that led to its present weights."""
        self._waiting: list[tuple[str, str]] = []

    def add(
        self,
        *,
        trial_id: str,
        donor_id: str,
        tags: tuple[str, str],
        iterations: tuple[int, int],
        config: Mapping[str, Any],
        changed: Any,
    ) -> None:
        """A trial has got the weights of a donor. `tags` and `iterations` are the trial's and the
        donor's, `config` is the donor's.
        """
        line = json_values.encode([*tags, *iterations, config, changed]).decode().rstrip("\n")
        own = policy_file(trial_id)
        if trial_id in self._histories:
            self._waiting.append((own, _DIVIDER))
        history = (*self._histories.get(donor_id, ()), line)
        self._histories[trial_id] = history
        self._waiting += [(GLOBAL_FILE, line), *((own, earlier) for earlier in history)]

    def drain(self) -> list[tuple[str, str]]:
        """(file name, line) for each line to be added, in order; they are not given again."""
        waiting, self._waiting = self._waiting, []
        return waiting


def read_policy(
    lines: Iterable[str], name: str
) -> tuple[dict[str, Any] | None, list[tuple[int, dict[str, Any]]]]:
    """What led to a trial's weights: the first configuration, None if the file is empty, and
    (iteration, configuration) of every change.

    Args:
        lines: Those of a policy file.
        name: The file, for messages.

    Raises:
        ValueError: A line is no policy.
    """
    changes: list[tuple[int, dict[str, Any]]] = []
    first: dict[str, Any] | None = None
    expected: str | None = None
    for number, row in reversed(list(enumerate(lines, start=1))):
        if not row.strip():
            continue
        try:
            tag, donor_tag, _, donor_iteration, config, changed = json.loads(row)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{name}, line {number}, is no step of a PBT policy ({error}): give the `pbt_policy_….txt` of one trial, as "
                f"PopulationBasedTraining(log_config=True) leaves it in the experiment directory."
            ) from None
        if expected is not None and tag != expected:
            break  # what stands before was overwritten by what was just read
        expected = donor_tag
        first = config
        changes.append((donor_iteration, changed))
    return first, changes[::-1]


def read_policy_file(path: str) -> tuple[dict[str, Any] | None, list[tuple[int, dict[str, Any]]]]:
    """`read_policy` of a file on this machine.

    Raises:
        ValueError: There is no such file, or it is none of a policy.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise ValueError(
            f"{file} is not there: give the `pbt_policy_….txt` that a search with PopulationBasedTraining left behind."
        )
    return read_policy(file.read_text(encoding="utf-8").splitlines(), str(file))
