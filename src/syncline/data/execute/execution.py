"""`Execution`: an iterator over the blocks that a lowered plan makes. Its driver runs beside the program; this is the handle.

Covered: taking blocks, leaving early, statistics. Dropping the handle (a loop that is left, an error, the end of the program) ends the
execution at once: its threads, its tasks, and the references that nobody else holds.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from types import TracebackType

from syncline.data.execute.driver import Driver
from syncline.data.execute.outbox import OutputBlock
from syncline.data.execute.program import Program
from syncline.data.execute.stages import Stage
from syncline.data.execute.stats import ExecutionStats

__all__ = ["Execution", "OutputBlock", "Program"]


class Execution(Iterator[OutputBlock]):
    """The blocks of a program, in order. One thread at a time takes them.

    On engines with processes the work begins at once and goes on beside the program, as far as the byte budget allows. In local mode
    (`syncline.init(local_mode=True)`) every task runs in the thread that asks for the next block, so that `breakpoint()` works in
    functions; time limits of functions have no effect there.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._driver = Driver(program)
        self._finalizer = weakref.finalize(self, self._driver.abandon)
        self._driver.start()

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The operators, inputs before those that read them."""
        return self._program.stages

    @property
    def seed(self) -> int:
        """The seed of this execution, also where it was drawn."""
        return self._program.seed

    def __next__(self) -> OutputBlock:
        block = self.next(None)
        assert block is not None
        return block

    def next(self, timeout_s: float | None) -> OutputBlock | None:
        """The next block, or None if there is none within `timeout_s` seconds; None waits without end.

        Raises what the execution failed with (once), and StopIteration at the end.
        """
        return self._driver.take(timeout_s)

    def close(self) -> None:
        """End now: nothing goes on, and nothing is kept. Blocks that were taken stay valid. A second call does nothing."""
        self._finalizer.detach()
        self._driver.close()

    def stats(self) -> ExecutionStats:
        """What was done so far, or all in all, and where the time went."""
        return self._driver.stats()

    def __enter__(self) -> Execution:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None) -> None:
        self.close()
