"""One call: its arguments, its attempts, and where the outcome goes. Used for tasks and for methods
of actors alike.
"""

from __future__ import annotations

import bdb
import os
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from syncline.core import errors, serialization
from syncline.core.engine import Submitted
from syncline.core.inline.inline_objects import Entry, ObjectTable
from syncline.core.inline.surroundings import Surroundings
from syncline.core.options import RetryExceptions
from syncline.core.refs import Hold, ObjectRef
from syncline.core.serialization import Packed
from syncline.core.tracebacks import task_error
from syncline.exceptions import TaskCancelledError, WorkerCrashedError


class NotRun(Exception):
    """The call cannot run, and `error` is its outcome as it stands: that of a reference among the
    arguments, or the actor's death.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class Results:
    """Where the outcome of a call goes: one entry, or a fixed number of them. The first outcome
    counts.
    """

    def __init__(self, table: ObjectTable, number: int | None) -> None:
        """`number`: of values; None for the one value that is not taken apart."""
        self._table = table
        self._number = number
        self.entries = [table.create() for _ in range(1 if number is None else number)]

    def succeed(self, value: Any) -> None:
        """What the function returned. ValueError for a wrong number of values, TypeError for what
        cannot be pickled.
        """
        if self._number is None:
            self._table.settle(self.entries[0], value)
            return
        if self._number == 0:
            return
        values = tuple(value) if isinstance(value, Iterable) else None
        if values is None or len(values) != self._number:
            got = f"a {type(value).__name__}" if values is None else f"{len(values)} values"
            raise ValueError(
                f"`num_returns={self._number}` promises {self._number} values, but the function returned {got}: "
                "return a tuple of that length, or change `num_returns`."
            )
        for entry, one in zip(self.entries, values, strict=True):
            self._table.settle(entry, one)

    def fail(self, error: BaseException) -> None:
        """The same error for every value."""
        for entry in self.entries:
            self._table.fail(entry, error)

    def can_be_cancelled(self, cancel: Callable[[], None]) -> None:
        """What ends the call, until there is an outcome."""
        for entry in self.entries:
            self._table.let_cancel(entry, cancel)

    def submitted(self) -> Submitted:
        """What the caller gets."""
        made: list[ObjectRef[Any]] = [ObjectRef(entry.id) for entry in self.entries]
        if self._number is None:
            return made[0]
        return made or None


@dataclass(frozen=True, kw_only=True)
class Call:
    """What to run."""

    name: str
    """As errors and the timeline spell it."""
    arguments: Packed
    """`(args, kwargs)`."""
    held: tuple[ObjectRef[Any], ...]
    """References that are arguments themselves, which are replaced by their values."""
    inside: tuple[Hold, ...]
    """What keeps everything that the arguments refer to until the call is over."""
    surroundings: Surroundings
    max_retries: int
    """-1 for any number."""
    retry_exceptions: RetryExceptions

    def dependencies(self, table: ObjectTable) -> list[Entry]:
        """What must exist before the call can run."""
        return [table.find(ref.id) for ref in self.held]

    def load_arguments(self, table: ObjectTable) -> tuple[list[Any], dict[str, Any]]:
        """Fresh copies of the arguments, references replaced. NotRun where one of those is an
        error.
        """
        args, kwargs = serialization.unpack(self.arguments.data, self.arguments.buffers)
        return [_value(arg, table) for arg in args], {
            name: _value(arg, table) for name, arg in kwargs.items()
        }

    def wants_retry(self, error: BaseException, failures: int) -> bool:
        """Whether to try again after the `failures`-th failure with an exception of user code."""
        wanted = self.retry_exceptions
        if (
            not isinstance(error, Exception)
            or wanted is False
            or not (wanted is True or isinstance(error, wanted))
        ):
            return False
        return self.max_retries < 0 or failures <= self.max_retries

    def failure(self, error: BaseException) -> BaseException:
        """What `get` raises for an exception of user code."""
        if isinstance(error, NotRun):
            return error.error
        if isinstance(error, SystemExit):
            cause = f"called sys.exit({error.code!r})"
            return WorkerCrashedError(
                errors.worker_crashed(self.name, os.getpid(), cause, attempts=1),
                pid=os.getpid(),
                exit_cause=cause,
            )
        return task_error(self.name, error)


def attempt(call: Call, results: Results, body: Callable[[], Any]) -> None:
    """Run `body` until it succeeds or no retry is left. Ctrl-C and the end of a debugger session
    reach the program itself.
    """
    failures = 0
    while True:
        try:
            results.succeed(body())
            return
        except bdb.BdbQuit:
            raise
        except NotRun as refused:
            results.fail(refused.error)
            return
        except (Exception, SystemExit) as error:
            failures += 1
            if not call.wants_retry(error, failures):
                results.fail(call.failure(error))
                return


async def attempt_async(call: Call, results: Results, body: Callable[[], Any]) -> None:
    """The same for a body that gives a coroutine; CancelledError becomes TaskCancelledError."""
    failures = 0
    while True:
        try:
            results.succeed(await body())
            return
        except NotRun as refused:
            results.fail(refused.error)
            return
        except (Exception, SystemExit) as error:
            failures += 1
            if not call.wants_retry(error, failures):
                results.fail(call.failure(error))
                return
        except BaseException:  # CancelledError, or a Ctrl-C that another thread has to answer
            results.fail(TaskCancelledError(task_id=f"{call.surroundings.task_id:032x}"))
            raise


async def as_async_iterator(values: Any) -> AsyncIterator[Any]:
    """Items of either kind of generator."""
    if hasattr(values, "__anext__"):
        async for value in values:
            yield value
    else:
        for value in values:
            yield value


def _value(argument: Any, table: ObjectTable) -> Any:
    if not isinstance(argument, ObjectRef):
        return argument
    entry = table.find(argument.id)
    if entry.error is not None:
        raise NotRun(serialization.unpack_error(entry.error))
    return entry.load()
