"""Events and instructions of asynchronous plans. Fragments and batches are given by number."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RunnerJoined:
    """A runner can sample."""

    runner: int


@dataclass(frozen=True, kw_only=True)
class RunnerLost:
    """A runner has failed permanently; its requests are void."""

    runner: int


@dataclass(frozen=True, kw_only=True)
class FragmentReady:
    """A runner delivered a fragment."""

    runner: int
    fragment: int
    steps: int
    version: int
    """Version of the weights that sampled it."""


@dataclass(frozen=True, kw_only=True)
class UpdateDone:
    """The learners finished a pass over a batch."""

    batch: int


Event = RunnerJoined | RunnerLost | FragmentReady | UpdateDone


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Request a fragment from a runner."""

    runner: int


@dataclass(frozen=True, kw_only=True)
class Learn:
    """Train on a batch."""

    batch: int
    fragments: tuple[int, ...]
    is_last: bool
    """This is the last pass over the batch."""


@dataclass(frozen=True, kw_only=True)
class Publish:
    """Send the learners' weights to all runners."""

    version: int
    """Number of updates so far."""


Instruction = Sample | Learn | Publish
