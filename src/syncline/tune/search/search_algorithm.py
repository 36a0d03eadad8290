"""What the controller asks for trials: the contract, and what it gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """One trial to run."""

    config: dict[str, Any]
    """What the trainable gets; every parameter has its value."""

    evaluated_params: dict[str, Any]
    """What the search gave, without the constants; keys of nested parameters are flat, "a/b"."""

    tag: str
    """The suggestion's number and parameters for people: "3_lr=0.1,momentum=0.9"."""


class SearchAlgorithm:
    """A source of trials. `BasicVariantGenerator` is one, `SearchGenerator` makes one of any
    `Searcher`.

    `configure` comes first, once. All calls come from one thread. `next_trial` costs the same
    however many trials there were. A state of `get_state` goes into another one, configured or not,
    and both then give the same suggestions to the same calls.
    """

    metric: Any = None
    mode: Any = None

    def configure(
        self, metric: Any, mode: Any, param_space: dict[str, Any], num_samples: int
    ) -> None:
        """Takes what to search; `num_samples` is -1 for no end. ValueError if this algorithm cannot
        search it.
        """
        raise NotImplementedError

    def next_trial(self, trial_id: str) -> Suggestion | None:
        """What the trial `trial_id` shall run; None if nothing is to be had now: ask again when a
        trial has ended.
        """
        raise NotImplementedError

    def is_finished(self) -> bool:
        """Whether nothing more will come, unless samples are added."""
        raise NotImplementedError

    def add_samples(self, n: int) -> None:
        """Lets `n` more samples come, as if `num_samples` had been larger by so many."""
        raise NotImplementedError

    @property
    def total_samples(self) -> float:
        """How many trials there will be in all; `math.inf` if there is no end."""
        raise NotImplementedError

    def get_state(self) -> bytes:
        """All that is needed to go on elsewhere, random generators included."""
        raise NotImplementedError

    def set_state(self, state: bytes) -> None:
        """Goes on from a state of `get_state`."""
        raise NotImplementedError

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """A trial reported."""

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """A trial ended, with its last result; `error` says whether it failed."""

    def on_pause(self, trial_id: str) -> None:
        """A scheduler paused the trial."""

    def on_unpause(self, trial_id: str) -> None:
        """A paused trial goes on."""
