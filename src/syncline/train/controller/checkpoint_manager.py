"""Retention of checkpoints: the best K, the latest, and those with a pending validation.

Pure: no files are accessed. Methods return the checkpoints to delete. The caller deletes them after
it has stored the new state (`to_json`), so that a state never lists a deleted checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from syncline.runs.json_values import JsonObject, Record
from syncline.train import metric_values
from syncline.train.checkpoint import Checkpoint, ReportedCheckpoint, ReportedCheckpointStatus
from syncline.train.config import CheckpointConfig


@dataclass(frozen=True, kw_only=True)
class Registered:
    """A checkpoint of the run."""

    index: int
    """Number of its report."""

    checkpoint: Checkpoint

    metrics: JsonObject
    """Metrics of rank 0, updated with those of the validation."""

    status: ReportedCheckpointStatus = ReportedCheckpointStatus.COMMITTED

    validation_kwargs: JsonObject | None = None
    """Arguments of a pending validation, which JSON can hold."""

    @property
    def pending(self) -> bool:
        """True if its validation has not ended."""
        return self.status is ReportedCheckpointStatus.PENDING_VALIDATION


class CheckpointManager:
    """Checkpoints of one run, ranked by `config`. Not thread-safe.

    They are ranked by score. Of equal scores, the later one is better; a missing or NaN score is
    worst. Without a score attribute, they are ranked by time.
    """

    def __init__(self, config: CheckpointConfig) -> None:
        self._config = config
        self._registered: list[Registered] = []  # in the order of the reports

    def register(
        self,
        index: int,
        checkpoint: Checkpoint,
        metrics: Record,
        *,
        validation: JsonObject | None = None,
        replaces: Collection[Checkpoint] = (),
    ) -> list[Checkpoint]:
        """Register a committed checkpoint; return those to delete.

        Args:
            index: Number of its report, above every earlier one.
            checkpoint: The checkpoint. If its location is registered already, it is replaced.
            metrics: Metrics of rank 0.
            validation: Arguments of its pending validation, until the end of which it is kept; None
                without one.
            replaces: Older versions in other locations, which are deleted unless their validation
                is pending.
        """
        entry = Registered(
            index=index,
            checkpoint=checkpoint,
            metrics=dict(metrics),
            status=ReportedCheckpointStatus.COMMITTED
            if validation is None
            else ReportedCheckpointStatus.PENDING_VALIDATION,
            validation_kwargs=validation,
        )
        replaced = [
            other
            for other in self._registered
            if not other.pending and other.checkpoint in replaces
        ]
        gone = {other.index for other in replaced} | {
            other.index for other in self._registered if other.checkpoint == checkpoint
        }
        kept = [other for other in self._registered if other.index not in gone]
        self._registered = sorted([*kept, entry], key=lambda other: other.index)
        return [
            other.checkpoint for other in replaced if other.checkpoint != checkpoint
        ] + self._surplus()

    def forget(self, index: int) -> None:
        """Unregister the checkpoint of report `index`, which does not exist any more."""
        self._registered = [entry for entry in self._registered if entry.index != index]

    def move(self, moved: Callable[[Checkpoint], Checkpoint]) -> None:
        """Replace all locations by `moved(checkpoint)`."""
        self._registered = [
            replace(entry, checkpoint=moved(entry.checkpoint)) for entry in self._registered
        ]

    def settle_validation(
        self, index: int, metrics: Record | None, *, timed_out: bool = False
    ) -> list[Checkpoint]:
        """Record the end of a validation and rank again; return the checkpoints to delete.

        Args:
            index: Number of the report, whose checkpoint may be gone.
            metrics: Result of the validation, merged into the metrics; None if it failed.
            timed_out: True if it failed because of its time limit.

        Raises:
            ValueError: Validation has ended and the first checkpoint lacks the score attribute.
        """
        if metrics is not None:
            attribute = self.unused_score_attribute
            for entry in self._registered:
                if entry.index == index and attribute is not None:
                    metric_values.check_score({**entry.metrics, **metrics}, attribute)
            status = ReportedCheckpointStatus.VALIDATED
        elif timed_out:
            status = ReportedCheckpointStatus.VALIDATION_TIMEOUT
        else:
            status = ReportedCheckpointStatus.VALIDATION_FAILED
        self._registered = [
            replace(
                entry,
                status=status,
                metrics={**entry.metrics, **(metrics or {})},
                validation_kwargs=None,
            )
            if entry.index == index
            else entry
            for entry in self._registered
        ]
        return self._surplus()

    @property
    def unused_score_attribute(self) -> str | None:
        """Score attribute if the metrics of no checkpoint have it, as if its name were misspelled;
        None otherwise.
        """
        attribute = self._config.checkpoint_score_attribute
        if attribute is None or any(
            attribute in metric_values.flatten(entry.metrics) for entry in self._registered
        ):
            return None
        return attribute

    @property
    def latest(self) -> Registered | None:
        """Last registered checkpoint, from which a restart continues."""
        return self._registered[-1] if self._registered else None

    @property
    def best_checkpoints(self) -> list[tuple[Checkpoint, JsonObject]]:
        """Best K checkpoints with their metrics, worst to best."""
        ranked = self._ranked()
        if self._config.num_to_keep is not None:
            ranked = ranked[-self._config.num_to_keep :]
        return [(entry.checkpoint, entry.metrics) for entry in ranked]

    @property
    def registered(self) -> list[Registered]:
        """All checkpoints in report order."""
        return list(self._registered)

    @property
    def reported(self) -> list[ReportedCheckpoint]:
        """All checkpoints in report order, for training functions."""
        return [
            ReportedCheckpoint(entry.checkpoint, dict(entry.metrics), entry.status)
            for entry in self._registered
        ]

    @property
    def pending(self) -> list[Registered]:
        """Checkpoints with a pending validation, in report order."""
        return [entry for entry in self._registered if entry.pending]

    def to_json(self, name_of: Callable[[Checkpoint], str]) -> JsonObject:
        """Return the state for the run directory.

        `name_of` returns a checkpoint's path relative to it, so that a run can be moved.
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
        cls, state: Record, config: CheckpointConfig, locate: Callable[[str], Checkpoint]
    ) -> CheckpointManager:
        """Return the manager for a state of `to_json`; `locate` is the inverse of `name_of`.

        Raises:
            ValueError: `state` is invalid.
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
                f"The list of checkpoints cannot be read ({error!r}): another program "
                "has changed it."
            ) from error
        manager._registered = sorted(entries, key=lambda entry: entry.index)
        return manager

    def _surplus(self) -> list[Checkpoint]:
        """Unregister and return checkpoints that are neither among the best K nor latest nor
        pending.
        """
        if self._config.num_to_keep is None or not self._registered:
            return []
        kept = {entry.index for entry in self._ranked()[-self._config.num_to_keep :]}
        kept |= {entry.index for entry in self._registered if entry.pending}
        kept.add(self._registered[-1].index)
        dropped = [entry.checkpoint for entry in self._registered if entry.index not in kept]
        self._registered = [entry for entry in self._registered if entry.index in kept]
        return dropped

    def _ranked(self) -> list[Registered]:
        return sorted(self._registered, key=self._rank)

    def _rank(self, entry: Registered) -> tuple[bool, float, int]:
        attribute = self._config.checkpoint_score_attribute
        if attribute is None:
            return True, 0.0, entry.index
        value = metric_values.score(entry.metrics, attribute, self._config.checkpoint_score_order)
        return value is not None, value or 0.0, entry.index
