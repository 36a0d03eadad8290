"""Which checkpoints a run keeps: the best K, the latest, and those whose validation is pending.
Pure: no files are touched here.

The caller deletes what a method returns, and does so after it has stored the new state (`to_json`),
so that a state never lists a checkpoint that is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from syncline.train import metric_values
from syncline.train.checkpoint import Checkpoint, ReportedCheckpoint, ReportedCheckpointStatus
from syncline.train.config import CheckpointConfig


@dataclass(frozen=True, kw_only=True)
class Registered:
    """One checkpoint that the run has."""

    index: int
    """Number of the report that brought it; later ones are higher."""

    checkpoint: Checkpoint
    """Where it lies."""

    metrics: dict[str, Any]
    """Rank 0's, with those of the validation once that has ended."""

    status: ReportedCheckpointStatus = ReportedCheckpointStatus.COMMITTED
    """How far it has come."""

    validation_kwargs: dict[str, Any] | None = None
    """What a later run needs to queue a pending validation again; JSON can hold it."""

    @property
    def pending(self) -> bool:
        """Whether its validation has not ended."""
        return self.status is ReportedCheckpointStatus.PENDING_VALIDATION


class CheckpointManager:
    """The checkpoints of one run, ranked by `config`.

    Ranking: by score; equal scores, the later is better; a score that is missing, NaN or no number
    is worst; with no score attribute, by time. Not safe for use from several threads.
    """

    def __init__(self, config: CheckpointConfig) -> None:
        self._config = config
        self._registered: list[Registered] = []  # in the order of the reports

    def register(
        self,
        index: int,
        checkpoint: Checkpoint,
        metrics: Mapping[str, Any],
        *,
        validate: bool = False,
        validation_kwargs: dict[str, Any] | None = None,
        replaces: Collection[Checkpoint] = (),
    ) -> list[Checkpoint]:
        """Take a committed checkpoint in; returns those that the run need not keep any more.

        Args:
            index: Number of its report, above every earlier one.
            checkpoint: Where it lies. If that place is registered already, the new report takes the
                old one's place.
            metrics: Rank 0's.
            validate: Whether it waits for a validation, until which it is kept in any case.
            validation_kwargs: Kept with it while the validation is pending.
            replaces: Registered ones in other places that it is a newer version of; they go, unless
                their validation is pending.
        """
        status = (
            ReportedCheckpointStatus.PENDING_VALIDATION
            if validate
            else ReportedCheckpointStatus.COMMITTED
        )
        kwargs = validation_kwargs if validate else None
        entry = Registered(
            index=index,
            checkpoint=checkpoint,
            metrics=dict(metrics),
            status=status,
            validation_kwargs=kwargs,
        )
        replaced = [
            other
            for other in self._registered
            if not other.pending and other.checkpoint in replaces
        ]
        gone = {other.index for other in replaced} | {
            other.index for other in self._registered if other.checkpoint == checkpoint
        }
        self._registered = [other for other in self._registered if other.index not in gone] + [
            entry
        ]
        self._registered.sort(key=lambda other: other.index)
        return [
            other.checkpoint for other in replaced if other.checkpoint != checkpoint
        ] + self.surplus()

    def forget(self, index: int) -> None:
        """Take the checkpoint of report `index` out of the list, because it is not there any
        more.
        """
        self._registered = [entry for entry in self._registered if entry.index != index]

    def move(self, moved: Callable[[Checkpoint], Checkpoint]) -> None:
        """The checkpoints lie where `moved` says by now."""
        self._registered = [
            replace(entry, checkpoint=moved(entry.checkpoint)) for entry in self._registered
        ]

    def finish_validation(self, index: int, metrics: Mapping[str, Any]) -> list[Checkpoint]:
        """The validation of report `index` returned `metrics`: merge and rank again; returns what
        need not be kept.

        Raises:
            KeyError: No checkpoint of that number is registered.
        """
        entry = self._find(index)
        merged = {**entry.metrics, **metrics}
        return self._settle(
            replace(
                entry,
                metrics=merged,
                status=ReportedCheckpointStatus.VALIDATED,
                validation_kwargs=None,
            )
        )

    def fail_validation(self, index: int, *, timed_out: bool = False) -> list[Checkpoint]:
        """The validation of report `index` raised, or ran too long; returns what need not be kept.

        Raises:
            KeyError: No checkpoint of that number is registered.
        """
        status = (
            ReportedCheckpointStatus.VALIDATION_TIMEOUT
            if timed_out
            else ReportedCheckpointStatus.VALIDATION_FAILED
        )
        return self._settle(replace(self._find(index), status=status, validation_kwargs=None))

    def surplus(self) -> list[Checkpoint]:
        """Forget, and return, what is neither among the best K nor the latest nor pending. Needed
        by itself only if K has changed.
        """
        if self._config.num_to_keep is None or not self._registered:
            return []
        kept = {entry.index for entry in self._ranked()[-self._config.num_to_keep :]}
        kept |= {entry.index for entry in self._registered if entry.pending}
        kept.add(self._registered[-1].index)
        dropped = [entry.checkpoint for entry in self._registered if entry.index not in kept]
        self._registered = [entry for entry in self._registered if entry.index in kept]
        return dropped

    @property
    def latest(self) -> Registered | None:
        """The last one registered, from which a restart goes on."""
        return self._registered[-1] if self._registered else None

    @property
    def best_checkpoints(self) -> list[tuple[Checkpoint, dict[str, Any]]]:
        """The best K with their metrics, worst to best."""
        ranked = self._ranked()
        if self._config.num_to_keep is not None:
            ranked = ranked[-self._config.num_to_keep :]
        return [(entry.checkpoint, entry.metrics) for entry in ranked]

    @property
    def registered(self) -> list[Registered]:
        """All that are kept, in the order of their reports."""
        return list(self._registered)

    @property
    def reported(self) -> list[ReportedCheckpoint]:
        """All that are kept, in the order of their reports, as train functions see them."""
        return [
            ReportedCheckpoint(entry.checkpoint, dict(entry.metrics), entry.status)
            for entry in self._registered
        ]

    @property
    def pending(self) -> list[Registered]:
        """Those whose validation has not ended, first in first."""
        return [entry for entry in self._registered if entry.pending]

    def to_json(self, name_of: Callable[[Checkpoint], str]) -> dict[str, Any]:
        """The state for the run directory. `name_of` gives a checkpoint's path relative to it, so
        that a run can be moved.
        """
        return {
            "checkpoints": [
                {
                    "index": entry.index,
                    "name": name_of(entry.checkpoint),
                    "metrics": entry.metrics,
                    "status": entry.status.value,
                    "validation_kwargs": entry.validation_kwargs,
                }
                for entry in self._registered
            ],
            "best": [name_of(checkpoint) for checkpoint, _ in self.best_checkpoints],
        }

    @classmethod
    def from_json(
        cls, state: Mapping[str, Any], config: CheckpointConfig, locate: Callable[[str], Checkpoint]
    ) -> CheckpointManager:
        """The manager whose `to_json` gave `state`; `locate` is the inverse of `name_of`.

        Raises:
            ValueError: `state` is not of that form.
        """
        manager = cls(config)
        try:
            entries = [
                Registered(
                    index=item["index"],
                    checkpoint=locate(item["name"]),
                    metrics=dict(item["metrics"]),
                    status=ReportedCheckpointStatus(item["status"]),
                    validation_kwargs=item.get("validation_kwargs"),
                )
                for item in state["checkpoints"]
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"The list of checkpoints cannot be read ({error!r}): another program has written or changed it."
            ) from error
        manager._registered = sorted(entries, key=lambda entry: entry.index)
        return manager

    def _find(self, index: int) -> Registered:
        for entry in self._registered:
            if entry.index == index:
                return entry
        raise KeyError(
            f"No checkpoint of report {index} is registered; there are {[entry.index for entry in self._registered]}."
        )

    def _settle(self, entry: Registered) -> list[Checkpoint]:
        self._registered = [
            entry if other.index == entry.index else other for other in self._registered
        ]
        return self.surplus()

    def _ranked(self) -> list[Registered]:
        """Worst to best."""
        return sorted(self._registered, key=self._rank)

    def _rank(self, entry: Registered) -> tuple[bool, float, int]:
        attribute = self._config.checkpoint_score_attribute
        if attribute is None:
            return True, 0.0, entry.index
        value = metric_values.score(entry.metrics, attribute, self._config.checkpoint_score_order)
        return value is not None, value or 0.0, entry.index
