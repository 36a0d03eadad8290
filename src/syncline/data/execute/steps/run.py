"""Running a chain: opening it, one task after the other, and the shape of the blocks that come
out.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from syncline.data.columnar import block as block_functions
from syncline.data.context import DataContext
from syncline.data.execute.chain import Chain, Output, Ports, TaskState
from syncline.data.execute.steps.user import UserStep
from syncline.data.io.sinks.datasink import TaskContext


@dataclass(kw_only=True)
class _OpenChain:
    """A chain that this process works on."""

    chain: Chain
    lock: threading.Lock = field(default_factory=threading.Lock)
    is_open: bool = False


_chains: dict[int, _OpenChain] = {}
_chains_lock = threading.Lock()


def open_chain(chain: Chain) -> None:
    """Open the steps of a chain, once in this process; `run_chain` does so too. UserFunctionError
    if a class cannot be constructed.
    """
    with _chains_lock:
        known = _chains.setdefault(id(chain), _OpenChain(chain=chain))
    with known.lock:
        if known.is_open:
            return
        names: Counter[str] = Counter()
        opened = 0
        try:
            with DataContext.current(chain.context):
                for step in chain.steps:
                    if isinstance(step, UserStep):
                        names[step.name] += 1
                        step.tell_apart(names[step.name])
                    step.open()
                    opened += 1
        except BaseException:
            for step in chain.steps[:opened]:
                step.close()
            raise
        known.is_open = True


def close_chain(chain: Chain) -> None:
    """Close the steps of a chain, if they are open. None of its tasks may be running."""
    with _chains_lock:
        known = _chains.pop(id(chain), None)
    if known is not None and known.is_open:
        for step in chain.steps:
            step.close()


def run_chain(
    chain: Chain, ports: Ports, payload: Any, task: TaskState, *, skip_rows: int = 0
) -> Iterator[Output]:
    """The blocks of one task, made as they are asked for, without the first `skip_rows` rows.

    Blocks are cut in the same places whatever is skipped. Tables may be slices of larger ones. A
    task without rows gives one block that has none, as long as its columns are known, so that
    schemas survive.
    """
    open_chain(chain)
    outputs = _without_first(_shaped(_blocks(chain, ports, payload, task), chain), skip_rows)
    context = TaskContext(task_idx=task.task, op_name=task.stage)
    with closing(outputs):
        while True:
            # Between two blocks this thread does other things, so that what is current has to be
            # set anew for each.
            with DataContext.current(chain.context), TaskContext.current(context):
                output = next(outputs, None)
            if output is None:
                return
            yield output


def _blocks(chain: Chain, ports: Ports, payload: Any, task: TaskState) -> Iterator[pa.Table]:
    """What comes out of the last step."""
    blocks = _timed(chain.head(ports, payload, task), task)
    for step in chain.steps:
        blocks = step.run(blocks, task)
    return blocks


def _timed(blocks: Iterator[pa.Table], task: TaskState) -> Iterator[pa.Table]:
    """The same blocks; the time that they take counts as reading."""
    while True:
        began = time.monotonic()
        try:
            block = next(blocks, None)
        finally:
            task.read_s += time.monotonic() - began
        if block is None:
            return
        yield block


def _shaped(blocks: Iterator[pa.Table], chain: Chain) -> Iterator[Output]:
    """The same rows in blocks of the size that the chain asks for: large blocks are cut, small ones
    put together.
    """
    limits = _Limits(
        rows=math.inf if chain.max_block_rows is None else chain.max_block_rows,
        size_bytes=math.inf if chain.max_block_bytes is None else chain.max_block_bytes,
    )
    limit = limits.beginning_at(chain.first_block_bytes)
    held: list[pa.Table] = []
    sizes = _Sizes(0, 0)
    without_rows: pa.Table | None = None
    any_rows = False
    for block in blocks:
        if not block.num_rows:
            without_rows = block if without_rows is None and block.num_columns else without_rows
            continue
        any_rows = True
        rest: pa.Table | None = block
        while rest is not None:
            part, rest, added = _cut(rest, limit)
            if held and not limit.hold(sizes.plus(added)):
                yield Output(table=block_functions.concat(held), is_last=False)
                held, sizes, limit = [], _Sizes(0, 0), limit.after(limits)
            held.append(part)
            sizes = sizes.plus(added)
            # Waiting for the next part, only to see that it does not fit, would keep this one from
            # those who need it.
            if not limit.hold(sizes.plus(added)):
                yield Output(table=block_functions.concat(held), is_last=False)
                held, sizes, limit = [], _Sizes(0, 0), limit.after(limits)
    if held:
        yield Output(table=block_functions.concat(held), is_last=True)
    elif not any_rows and without_rows is not None:
        yield Output(table=without_rows, is_last=True)


class _Sizes(NamedTuple):
    rows: int
    size_bytes: int

    def plus(self, other: _Sizes) -> _Sizes:
        return _Sizes(self.rows + other.rows, self.size_bytes + other.size_bytes)


class _Limits(NamedTuple):
    rows: float
    size_bytes: float

    def hold(self, sizes: _Sizes) -> bool:
        return sizes.rows <= self.rows and sizes.size_bytes <= self.size_bytes

    def beginning_at(self, first_bytes: int | None) -> _Limits:
        """What holds for a task's first block."""
        return (
            self
            if first_bytes is None
            else self._replace(size_bytes=min(first_bytes, self.size_bytes))
        )

    def after(self, most: _Limits) -> _Limits:
        """What holds for the block after one for which this held."""
        return self._replace(size_bytes=min(self.size_bytes * 2, most.size_bytes))


def _cut(block: pa.Table, limit: _Limits) -> tuple[pa.Table, pa.Table | None, _Sizes]:
    """The first of as many about equal parts as the limit makes necessary, what is left, and how
    large the part is.

    A part has at least one row.
    """
    rows, size_bytes = block.num_rows, block_functions.size_bytes(block)
    parts = min(
        rows, max(math.ceil(rows / limit.rows), math.ceil(size_bytes / limit.size_bytes), 1)
    )
    if parts == 1:
        return block, None, _Sizes(rows, size_bytes)
    part = block.slice(0, rows // parts)
    return part, block.slice(part.num_rows), _Sizes(part.num_rows, block_functions.size_bytes(part))


def _without_first(outputs: Iterator[Output], rows: int) -> Generator[Output, None, None]:
    """The same blocks without the first rows."""
    for output in outputs:
        skipped = min(rows, output.table.num_rows)
        rows -= skipped
        if not skipped:
            yield output
        elif skipped < output.table.num_rows:
            yield Output(table=output.table.slice(skipped), is_last=output.is_last)
