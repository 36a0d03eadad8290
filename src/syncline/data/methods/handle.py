"""What every method of a dataset builds on: the plan, the context, and the one way to execute
it.
"""

from __future__ import annotations

import copy
import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import pyarrow as pa

from syncline.core.tracebacks import shorten
from syncline.data.context import DataContext, ExecutionOptions
from syncline.data.execute import cache
from syncline.data.execute.start import start
from syncline.data.plan import properties
from syncline.data.plan.nodes import HeldBlock, Node

if TYPE_CHECKING:
    from typing_extensions import Self

    from syncline.data.dataset import Dataset, MaterializedDataset
    from syncline.data.execute.execution import Execution
    from syncline.data.execute.recording.place import RecordPlace
    from syncline.data.iterator import DataIterator


P = ParamSpec("P")
R = TypeVar("R")


def _failing_at_the_call(method: Callable[P, R]) -> Callable[P, R]:
    """The method, which fails as if the program's call of it had raised the error, where the
    error's text says all that counts.
    """

    @functools.wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except (Exception, KeyboardInterrupt) as error:
            shorten(error)
            raise

    return called


@dataclass(kw_only=True)
class Learned:
    """What executions of a dataset have told about it. No part of its meaning: a copy of the handle
    may begin without.
    """

    schema: pa.Schema | None = None
    num_rows: int | None = None
    size_bytes: int | None = None
    executions: int = 0
    """How often all of it was executed: the epoch of the next execution, for shuffles that are to
    differ.
    """
    stats: Callable[[], str] | None = None
    """Where the time of the last execution went."""
    loops: DataIterator | None = None
    """What `iter_rows`, `iter_batches` and the like loop over."""


class Handle(ABC):
    """A plan that nothing changes, with a context of its own. Methods return new handles on longer
    plans, or execute the plan.

    Args:
        node: What the rows are computed from.
        context: Settings, copied; the current ones if None.
        name: For people, in progress and statistics.
    """

    def __init__(
        self, node: Node, context: DataContext | None = None, *, name: str | None = None
    ) -> None:
        self._node = node
        self._context = (context or DataContext.get_current()).copy()
        self._name = name
        self._learned = Learned()

    def __getstate__(self) -> dict[str, Any]:
        return {"_node": self._node, "_context": self._context, "_name": self._name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._learned = Learned()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, method in list(vars(cls).items()):
            if inspect.isfunction(method) and not name.startswith("_"):
                setattr(cls, name, _failing_at_the_call(method))

    @property
    def context(self) -> DataContext:
        """The settings of this dataset: a copy of those that were current when it was created."""
        return self._context

    @property
    def name(self) -> str | None:
        """The name that `set_name` gave it; for people only."""
        return self._name

    def set_name(self, name: str | None) -> None:
        """Give it a name, which progress and statistics show."""
        self._name = name

    def _with_options(self, options: ExecutionOptions) -> Dataset:
        """The same plan, executed under other options."""
        changed = self._derive(self._node)
        changed._context.execution_options = copy.deepcopy(options)
        return changed

    def _recorded_in(self, place: RecordPlace) -> Self:
        """The same dataset, whose executions are recorded in the directory of a run."""
        changed = copy.copy(self)
        changed._context = self._context.copy()
        changed._context._record_place = place
        changed._learned = replace(self._learned, loops=None)
        return changed

    @abstractmethod
    def _derive(self, node: Node) -> Dataset:
        """A dataset of another plan, with a copy of this one's context."""

    @staticmethod
    @abstractmethod
    def _of_blocks(blocks: Sequence[HeldBlock], context: DataContext) -> MaterializedDataset:
        """A dataset of blocks that exist."""

    def _hold(self, blocks: Sequence[HeldBlock]) -> MaterializedDataset:
        """A dataset of blocks that were made from this one."""
        return self._of_blocks(blocks, self._context)

    def _known_schema(self) -> pa.Schema | None:
        """The schema, as far as it is known without executing anything."""
        return (
            properties.known_schema(cache.answered(self._node))
            if self._learned.schema is None
            else self._learned.schema
        )

    @contextmanager
    def _execution(self, node: Node | None = None) -> Iterator[Execution]:
        """The running execution of a plan (this dataset's own if None). It ends with the block,
        complete or not.
        """
        epoch = self._learned.executions if node is None else 0
        execution = start(node or self._node, self._context, epoch=epoch, name=self._name or "")
        try:
            yield execution
        finally:
            execution.close()
            self._learned.executions = epoch + (node is None)
            self._learned.stats = execution.stats().to_string

    def _tables(self, node: Node | None = None) -> Iterator[pa.Table]:
        """The blocks of a plan (this dataset's own if None) as they are made."""
        with self._execution(node) as execution:
            for output in execution:
                yield output.table()
