"""`Job`: a task that runs, as the driver and the lanes see it, and what lanes tell the driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from syncline.core.refs import ObjectRef
from syncline.data.execute.chain import SkippedRows
from syncline.data.execute.messages import Launch
from syncline.data.execute.turns import Request, Turn
from syncline.data.execute.worker import Layout, WorkKey

Post: TypeAlias = Callable[[Callable[[], None]], None]
"""Have something done by the driver's thread; from any thread, also while garbage is collected."""


@dataclass(kw_only=True, eq=False)
class Job:
    """A task that the scheduler has launched, through all its attempts."""

    launch: Launch
    blocks: Sequence[int]
    """Numbers of the blocks that it works on, in the order that `layout` counts them in."""
    key: WorkKey
    request: Request
    layout: Layout
    """Which rows of which input tables each port gets."""
    stores: bool
    """Whether its blocks have to lie in the object store."""
    apart: bool = False
    """Whether its partitions are to be objects of their own."""
    in_turn: bool = True
    """It runs; else it waits to be resumed."""
    turn_began: float = 0.0
    produced_rows: int = 0
    """By this attempt."""
    deaths: int = 0
    """Attempts that ended because a process died."""
    retries: int = 0
    """Attempts that ended with an error after which the program wants another one."""
    skipped: list[SkippedRows] = field(default_factory=list)
    """Of this attempt."""
    place: Any = None
    """What the lane runs it with; None before, and once it is cancelled."""
    cancelled: bool = False

    def again(self) -> None:
        """Another attempt, which leaves out what was produced."""
        self.request = self.request._replace(skip_rows=self.request.skip_rows + self.produced_rows)
        self.produced_rows = 0
        self.skipped = []
        self.place = None


class Listener(Protocol):
    """What lanes tell; always in the driver's thread."""

    def turned(
        self,
        job: Job,
        turn: Turn,
        value: pa.Table | ObjectRef[Any] | Sequence[ObjectRef[Any]] | None,
    ) -> None:
        """A turn has ended. `value`: the block; for partitions as objects of their own one
        reference each.
        """

    def lost(self, job: Job, error: BaseException) -> None:
        """The turn has no answer because of the machine: a process died, an object is lost."""

    def broken(self, error: BaseException) -> None:
        """The lane cannot go on."""
