"""What passes through the `Keeping` stages of an execution, for their keepers, which make something
of it once all has passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from syncline.data.execute.outbox import OutputBlock
from syncline.data.execute.stages import Keeping, Stage


class Keeper(Protocol):
    """Makes something lasting of the blocks of one stage. For one execution, and one thread at a
    time.
    """

    @property
    def needs_store(self) -> bool:
        """Whether the blocks have to lie in the object store."""
        ...

    def begin(self) -> None:
        """Before the execution."""
        ...

    def add(self, block: OutputBlock) -> None:
        """The next rows, in order."""
        ...

    def complete(self) -> None:
        """These were all."""
        ...

    def discard(self) -> None:
        """Not all will come."""
        ...


class Keepers:
    """The keepers of an execution. For the driver's thread."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._keepers: dict[int, Keeper] = {}
        self._before: dict[int, set[int]] = {}
        for number, stage in enumerate(stages):
            before = set(stage.inputs).union(*(self._before[each] for each in stage.inputs))
            self._before[number] = before
            if isinstance(stage.grouping, Keeping) and stage.grouping.keeper is not None:
                self._keepers[number] = stage.grouping.keeper

    def add(self, stage: int, block: OutputBlock) -> None:
        """The next rows of a stage."""
        if stage in self._keepers:
            self._keepers[stage].add(block)

    def complete(self, stage: int) -> None:
        """They were all."""
        if stage in self._keepers:
            self._keepers[stage].complete()
            del self._keepers[stage]

    def spoil(self, stage: int) -> None:
        """Blocks of a stage are missing: nothing is kept of what comes after it."""
        for number in [number for number in self._keepers if stage in self._before[number]]:
            self._keepers.pop(number).discard()

    def close(self) -> None:
        """Nothing more comes."""
        keepers, self._keepers = list(self._keepers.values()), {}
        for keeper in keepers:
            keeper.discard()
