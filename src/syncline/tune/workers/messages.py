"""What the controller tells a trial's process to do, and what comes back: one outcome for each
command.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from syncline.core.placement import PlacementGroup
from syncline.train.checkpoint import Checkpoint
from syncline.train.storage import StorageContext
from syncline.tune.execution.placement_groups import PlacementGroupFactory


@dataclass(frozen=True, kw_only=True)
class TrialSpec:
    """One start of one trial."""

    trial_id: str
    """Id in the search."""
    trial_name: str
    """What people call it."""
    experiment_name: str
    """The search's name."""
    experiment_tag: str
    """Number and parameters."""
    config: Mapping[str, Any]
    """What the trainable gets."""
    storage: StorageContext
    """Where its files lie."""
    resources: PlacementGroupFactory
    """What it holds."""
    checkpoint: Checkpoint | None = None
    """What it goes on from."""
    progress: Mapping[str, Any] = field(default_factory=dict)
    """The result that came with that checkpoint."""
    in_trial_directory: bool = False
    """Whether its working directory is the trial's."""
    log_files: tuple[str, str] | None = None
    """Where what it prints is kept, too: paths of files for output and errors, relative to the
    trial's directory.
    """


# -- commands


@dataclass(frozen=True, kw_only=True)
class Start:
    """Make the trainable, from its checkpoint if there is one. -> Started, Failed."""

    spec: TrialSpec


@dataclass(frozen=True, kw_only=True)
class Reset:
    """Become another trial without a new process. -> Started, NotReset, Failed."""

    spec: TrialSpec


@dataclass(frozen=True, kw_only=True)
class Step:
    """Train until the next result. -> Stepped, Failed."""

    checkpoint_index: int
    """Number of the next checkpoint, if it comes with one."""
    collect_s: float = 0.0
    """Results that come within so many seconds are told together: nobody decides about them one by
    one.
    """


@dataclass(frozen=True, kw_only=True)
class Save:
    """Save a checkpoint, if it is a class. -> Saved, Failed."""

    checkpoint_index: int
    """Its number."""


@dataclass(frozen=True)
class Stop:
    """Clean up; the process ends next, or is used again. -> Stopped."""


@dataclass(frozen=True)
class GoOn:
    """The answer to WantsPlace, AskedForPlace and HasPlace. -> What the command at work comes
    to.
    """


Command = Start | Reset | Step | Save | Stop | GoOn


# -- outcomes


@dataclass(frozen=True, kw_only=True)
class Started:
    """The trainable is there."""

    location: str
    """Where, as `ip:pid`."""


@dataclass(frozen=True)
class NotReset:
    """The trainable cannot become another trial."""


@dataclass(frozen=True, kw_only=True)
class Stepped:
    """A result."""

    result: dict[str, Any]
    """With the keys that are filled in; the last one again where a function has ended."""
    earlier: tuple[dict[str, Any], ...] = ()
    """Results that came shortly before it, and were collected."""
    checkpoint: Checkpoint | None = None
    """Which came with it, committed."""
    ended: bool = False
    """A function has returned: `result` was told already, and nothing more will come."""


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A checkpoint was asked for."""

    checkpoint: Checkpoint | None
    """Committed; None if the trainable is a function, which saves when it reports."""


@dataclass(frozen=True)
class Stopped:
    """Cleaned up."""


@dataclass(frozen=True)
class WantsPlace:
    """A trainer inside the trial is about to reserve its workers: what the trial holds is free for
    it. Answered with GoOn.
    """


@dataclass(frozen=True)
class AskedForPlace:
    """That trainer has asked for its workers' resources, and may not have them yet. Answered with
    GoOn.
    """

    place: PlacementGroup
    """Which the trainer gives back itself, unless the trial is ended before."""


@dataclass(frozen=True)
class HasPlace:
    """That trainer has its workers' resources. Answered with GoOn."""


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The trainable has raised."""

    error: bytes
    """As `core.error_frames.pack_error` makes it."""
    text: str
    """Its traceback, the user's frames last."""


Outcome = (
    Started | NotReset | Stepped | Saved | Stopped | WantsPlace | AskedForPlace | HasPlace | Failed
)
