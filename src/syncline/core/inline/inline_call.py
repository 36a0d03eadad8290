"""One call of a task or method: its arguments, its attempts, its results and its context."""

from __future__ import annotations

import bdb
import itertools
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import GeneratorType
from typing import Any

from syncline import settings
from syncline.core import error_messages, packages, runtime_env, serialization
from syncline.core.embedded.engine import CURRENT, CurrentTask, TaskContext
from syncline.core.embedded.invocation import Arguments, load_arguments, split_result
from syncline.core.embedded.messages import ERROR, Value
from syncline.core.engine import Submitted
from syncline.core.inline.inline_objects import InlineObjects, pack_value, result_id
from syncline.core.options import RetryExceptions
from syncline.core.refs import AnyRef, Hold, ObjectRef
from syncline.core.tracebacks import task_error
from syncline.exceptions import RuntimeEnvSetupError, TaskCancelledError, WorkerCrashedError


class NotRun(Exception):
    """The call cannot run: an argument is an error, or its actor is dead. `error` is the result."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class Results:
    """The result objects of a call: one, or a fixed number. The first outcome counts."""

    def __init__(
        self, objects: InlineObjects, name: str, number: int | None, *, task_id: int
    ) -> None:
        """`number`: values to split the result into; None for one value."""
        self._objects = objects
        self._name = name
        self._number = number
        self._values: list[Value] = []  # of the first results, before an error
        self.ids = [
            objects.create(result_id(task_id, i)) for i in range(1 if number is None else number)
        ]
        self.on_done: Callable[[], None] = lambda: None
        """Called after the outcome."""

    def succeed(self, value: object) -> None:
        """Store the function's result; ValueError or TypeError if that is impossible.

        The items of a generator are the values, and its error is raised.
        """
        self._values = values = []
        if self._number is None and not isinstance(value, GeneratorType):
            parts: Iterable[object] = [value]
        else:
            parts = split_result(value, self._name, 1 if self._number is None else self._number)
        for part in parts:
            values.append(pack_value(part, f"the result of {self._name}()"))
        for id, packed in zip(self.ids, values, strict=True):
            self._objects.settle(id, packed)
        self.on_done()

    def fail(self, error: BaseException) -> None:
        """Store the values before the error, and the error for the remaining results."""
        for id, packed in zip(self.ids, self._values, strict=False):
            self._objects.settle(id, packed)
        for id in self.ids[len(self._values) :]:
            self._objects.fail(id, error)
        self.on_done()

    def set_cancel(self, cancel: Callable[[], None]) -> None:
        """Set the action that cancels the call until there is an outcome."""
        for id in self.ids:
            self._objects.set_cancel(id, cancel)

    def submitted(self) -> Submitted:
        """Return the references for the caller."""
        made: list[AnyRef] = [ObjectRef(id) for id in self.ids]
        return made[0] if self._number is None else made or None


@dataclass(frozen=True, kw_only=True)
class InlineContext(TaskContext):
    """Context of a task or call, with its runtime environment."""

    runtime_env: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of a function or method."""

    task_id: int
    arguments: Value
    arg_refs: tuple[AnyRef, ...]
    """Arguments that are references, replaced by their values."""
    holds: tuple[Hold, ...]
    """Holds on everything that the arguments refer to."""
    context: InlineContext
    max_retries: int
    """-1 means unlimited."""
    retry_exceptions: RetryExceptions

    @property
    def name(self) -> str:
        """Name for errors and the timeline."""
        return self.context.name

    def load_arguments(self, objects: InlineObjects) -> Arguments:
        """Return new copies of the arguments; NotRun if one of them is an error."""
        values: dict[int, Value] = {}
        for ref in self.arg_refs:
            value = objects.find(ref.id).value
            assert value is not None
            if value[0] == ERROR:
                raise NotRun(serialization.unpack_error(value[1]))
            values[ref.id] = value
        return load_arguments(self.arguments, values)

    def is_retryable(self, error: BaseException, failures: int) -> bool:
        """Return True if the call is retried after its `failures`-th error."""
        wanted = self.retry_exceptions
        if isinstance(error, SystemExit):  # like the crash of a process
            wanted = not self.context.actor_id
        elif wanted is False or not isinstance(error, Exception) or isinstance(error, NotRun):
            return False
        if wanted is False:
            return False
        if wanted is not True and not isinstance(error, wanted):
            return False
        return self.max_retries < 0 or failures <= self.max_retries

    def failure(self, error: BaseException) -> BaseException:
        """Return the error that `get` raises for an error of user code."""
        if isinstance(error, NotRun):
            return error.error
        if isinstance(error, SystemExit):
            cause = f"called sys.exit({error.code!r})"
            message = error_messages.worker_crashed(
                self.name, os.getpid(), cause, attempts=self.max_retries + 1
            )
            return WorkerCrashedError(message, pid=os.getpid(), exit_cause=cause)
        return task_error(self.name, error)

    def cancelled(self) -> TaskCancelledError:
        """Return the error of a cancelled call."""
        return TaskCancelledError(
            f"{self.name}() was cancelled, so it has no value.", task_id=f"{self.task_id:032x}"
        )


def attempt(call: Call, results: Results, body: Callable[[], object]) -> None:
    """Run `body` until it succeeds or no retry is left.

    Ctrl-C and the end of a debugger session are raised in the program.
    """
    for failures in itertools.count(1):
        try:
            results.succeed(body())
            return
        except bdb.BdbQuit:
            raise
        except (Exception, SystemExit) as error:
            if not call.is_retryable(error, failures):
                results.fail(call.failure(error))
                return


async def attempt_async(
    call: Call, results: Results, body: Callable[[], Awaitable[object]]
) -> None:
    """Run a coroutine like `attempt`; CancelledError becomes TaskCancelledError."""
    for failures in itertools.count(1):
        try:
            results.succeed(await body())
            return
        except (Exception, SystemExit) as error:
            if not call.is_retryable(error, failures):
                results.fail(call.failure(error))
                return
        except BaseException:  # CancelledError, or a Ctrl-C that another thread handles
            results.fail(call.cancelled())
            raise


@contextmanager
def running_as(call: Call, gpu_ids: tuple[str, ...] = ()) -> Iterator[None]:
    """Run the block in the context of a call."""
    context = replace(call.context, gpu_ids=gpu_ids) if gpu_ids else call.context
    token = CURRENT.set(CurrentTask(call.task_id, context))
    try:
        yield
    finally:
        CURRENT.reset(token)


@contextmanager
def environment_of(environment: Mapping[str, Any]) -> Iterator[None]:
    """Apply a runtime environment; restore variables, directory and module path afterwards.

    Modules stay imported, because this is one process.
    """
    if not environment:
        yield
        return
    wanted = packages.of_environment(environment)
    missing = () if wanted is None else wanted.missing()
    if missing:
        raise RuntimeEnvSetupError(
            f"`local_mode=True` runs everything in this process, which lacks {', '.join(missing)}: "
            f"install the packages before the program starts, or leave out `local_mode`"
        )
    variables, directory, path = settings.inherited_environment(), os.getcwd(), list(sys.path)
    try:
        runtime_env.apply(environment)
        yield
    finally:
        for name in environment.get("env_vars", {}):
            if name in variables:
                os.environ[name] = variables[name]
            else:
                os.environ.pop(name, None)
        if os.getcwd() != directory:
            os.chdir(directory)
        sys.path[:] = path
