"""`LoggerCallback`, the base of callbacks that keep a record of each trial, and `pretty_print`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from syncline.runs import json_values
from syncline.tune.callback import Callback
from syncline.tune.result import CONFIG

if TYPE_CHECKING:
    from syncline.tune.experiment.trial import Trial


class LoggerCallback(Callback):
    """Override what is of interest of a trial's life. `log_trial_end` comes for every trial that
    has ended: files are closed there.
    """

    def log_trial_start(self, trial: Trial) -> None:
        """A trial runs now, for the first time or again; it goes on from
        `trial.restored_iteration`.
        """

    def log_trial_restore(self, trial: Trial) -> None:
        """A trial has got its checkpoint back."""

    def log_trial_save(self, trial: Trial) -> None:
        """A checkpoint of a trial has been kept; it is `trial.checkpoint`."""

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """A trial has reported `result`, which must not be changed; `iteration` is the controller's
        step.
        """

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """A trial has ended."""

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        self.log_trial_result(iteration, trial, result)

    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        self.log_trial_start(trial)

    def on_trial_restore(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        self.log_trial_restore(trial)

    def on_trial_save(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self.log_trial_save(trial)

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        self.log_trial_end(trial, failed=False)

    def on_trial_error(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        self.log_trial_end(trial, failed=True)


def pretty_print(result: Mapping[str, Any], exclude: Collection[str] | None = None) -> str:
    """A result as text for people: a line per value, nested ones indented, sorted by name; without
    the configuration and empty values.
    """
    left_out = {CONFIG, "hist_stats", *(exclude or ())}
    shown = {
        key: value for key, value in result.items() if key not in left_out and value is not None
    }
    return "".join(f"{line}\n" for line in _lines(json.loads(json_values.encode(shown)), ""))


def _lines(shown: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key in sorted(shown):
        value = shown[key]
        if isinstance(value, dict) and value:
            yield f"{indent}{key}:"
            yield from _lines(value, indent + "  ")
        else:
            yield f"{indent}{key}: {value if isinstance(value, str) else json.dumps(value)}"
