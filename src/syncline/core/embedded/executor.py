"""The executor of a worker: takes its messages in order, runs tasks, and reports results.

Messages arrive on the thread that reads the channel (`accept`, under the connection's guard); the
main thread takes them from the inbox. Tasks and the calls of an ordinary actor run in the main
thread, one at a time.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Callable
from types import FrameType, GeneratorType
from typing import Any

from syncline import faults, settings
from syncline.core import gpus, termination, thread_limits
from syncline.core.embedded import messages as m
from syncline.core.embedded.actor_executor import ActorExecutor
from syncline.core.embedded.engine import CURRENT, ActorExit, CurrentTask, TaskContext
from syncline.core.embedded.hub_connection import RemoteHubConnection
from syncline.core.embedded.invocation import (
    Outcome,
    ResultPacker,
    cancelled,
    end_process,
    exit_process,
    load_arguments,
    was_interrupted,
)
from syncline.core.embedded.messages import Message, TaskSpec
from syncline.core.embedded.shared_reactor import Waiter
from syncline.core.program_state import ProgramReceiver


class Executor:
    """Runs the tasks of one worker, or the calls of its actor."""

    def __init__(
        self,
        connection: RemoteHubConnection,
        new_id: Callable[[], int],
        setup_failure: Exception | None,
        cancelled_calls: set[int],
    ) -> None:
        """`setup_failure`: error of the worker's setup; every task then fails with it.
        `cancelled_calls`: calls of user code that are cancelled while they run.
        """
        self._cancelled_calls = cancelled_calls
        self._connection = connection
        self._setup_failure = setup_failure
        self._inbox: deque[Message] = deque()
        self._idle: Waiter | None = None
        self._new_program: bytes | None = None  # not applied yet
        self._program = ProgramReceiver()
        self._code: dict[int, bytes] = {}
        self._functions: dict[int, Any] = {}
        self._definitions: dict[int, TaskSpec] = {}
        self._calls_made: dict[int, int] = {}  # by function, if it has `max_calls`
        self._contexts: dict[tuple[int, tuple[str, ...]], TaskContext] = {}
        self._main = threading.main_thread()
        self._running = 0  # the task or call whose user code runs in the main thread
        self._ending = threading.Lock()  # held by the main thread to reset `_running` after a task
        self._interrupting: set[int] = set()  # tasks that are being cancelled
        self._actor: ActorExecutor | None = None
        self._packer = ResultPacker(connection, new_id)
        self._gpu_ids: tuple[str, ...] | None = None
        self._threads = 0
        self.context = TaskContext()
        """Context of this process: its actor or its latest task. For threads of user code."""

    # -- any thread

    def accept(self, message: Message) -> None:
        """Take a message from the hub, under the connection's guard."""
        kind = message[0]
        if kind == m.DEFINE_FUNCTION:
            self._code[message[1]] = message[2]
        elif kind == m.DEFINE_TASK:
            self._definitions[message[1]] = message[2]
        elif kind == m.SET_PROGRAM:
            self._new_program = message[1]
        elif kind == m.CANCEL_TASK:
            self._connection.callbacks.append((self._stop, (message[1], message[2])))
        elif kind == m.RUN_CALL and self._actor is not None and self._actor.accepts_directly:
            self._actor.submit_to_loop(message)
        else:
            self._inbox.append(message)
            idle = self._idle
            if idle is not None:
                self._idle = None
                idle.settle()
            elif kind == m.RUN_TASK and self._main.ident in self._connection.waiting:
                # sent before the hub learned that this worker waits
                self._connection.callbacks.append((self._give_back, ()))

    def return_unstarted(self) -> list[int]:
        """Remove the tasks that have not begun and return their ids."""
        given: list[int] = []
        while self._inbox and self._inbox[-1][0] == m.RUN_TASK:
            try:
                message = self._inbox.pop()
            except IndexError:  # the main thread took it
                break
            if message[0] != m.RUN_TASK:
                self._inbox.append(message)
                break
            given.append(message[1])
        given.reverse()
        return given

    def on_idle(self) -> None:
        """Return unstarted tasks behind a long one, and send references; a background action."""
        if self._running and self._inbox and self._actor is None:
            self._give_back()
        self._connection.flush_references()

    def _give_back(self) -> None:
        given = self.return_unstarted()
        if given:
            self._connection.send((m.RETURNED, given))

    def on_interrupt(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGINT in the main thread: raise if the cancelled task still runs."""
        if self._running in self._interrupting:
            raise KeyboardInterrupt

    def _stop(self, task_id: int, force: bool) -> None:
        """Cancel a task or call: remove it from the inbox, or interrupt it, or kill this process.

        With `force` the process ends before the result of the task is sent, so that the tasks
        behind it have not begun.
        """
        for message in list(self._inbox):
            if message[0] in (m.RUN_TASK, m.RUN_CALL) and message[1] == task_id:
                try:
                    self._inbox.remove(message)
                except ValueError:
                    break  # it has just begun
                self._packer.send(Outcome(task_id, error=cancelled()))
                return
        if self._actor is not None and self._actor.stop(task_id):
            return
        self._interrupting.add(task_id)
        if force:
            with self._ending:
                if self._running == task_id:
                    os.kill(os.getpid(), signal.SIGKILL)
        elif self._running == task_id and self._main.ident is not None:
            signal.pthread_kill(self._main.ident, signal.SIGINT)

    # -- the main thread

    def serve(self) -> None:
        """Process messages until the hub stops this worker."""
        inbox = self._inbox
        while True:
            try:
                message = inbox.popleft()
            except IndexError:
                self._wait_for_message()
                continue
            kind = message[0]
            if kind == m.RUN_TASK:
                self._run(message)
            elif kind == m.RUN_CALL:
                self._invoke(message)
            elif kind == m.CREATE_ACTOR:
                self._create_actor(message)
            elif kind == m.EXIT:
                self._exit()

    def _wait_for_message(self) -> None:
        waiter = Waiter()
        self._idle = waiter
        if self._inbox:
            self._idle = None
            return
        self._connection.shared_reactor.wait(waiter)

    def _exit(self) -> None:
        if self._actor is not None:
            self._actor.close()
        end_process(self._connection, 0)

    def _run(self, message: Message) -> None:
        _, task_id, definition_id, args, arg_values, extra, gpu_ids = message
        faults.reach("worker.before_task")
        definition = self._definitions[definition_id]
        ids = (task_id, *extra)
        self.context = self._context(definition_id, definition, gpu_ids)
        token = CURRENT.set(CurrentTask(task_id, self.context))
        outcome = Outcome(task_id)
        try:
            function = self.load(definition.function_id)
            self._use(self.context)
            positional, keyword = load_arguments(args, arg_values)
            try:
                self._running = task_id
                if task_id in self._interrupting:  # cancelled since it left the inbox
                    raise KeyboardInterrupt
                result = function(*positional, **keyword)
                if definition.mode != m.ONE or type(result) is GeneratorType:
                    self._packer.pack(
                        outcome, result, definition.name, definition.mode,
                        definition.num_returns, ids, definition.backpressure,
                    )  # fmt: skip
                    result = None
            finally:
                with self._ending:
                    self._running = 0
            if definition.mode == m.ONE and not outcome.values:
                self._packer.pack(outcome, result, definition.name, m.ONE, 1, ids)
        except SystemExit as leaving:
            exit_process(self._connection, leaving)
        except BaseException as error:
            if task_id in self._interrupting and was_interrupted(error):
                outcome.error = cancelled()
            else:
                self._packer.fail(outcome, error, definition.name, definition.retry_on)
        # Drop references before the hub hears that the task ended.
        result, positional, keyword = None, (), {}
        CURRENT.reset(token)
        self._interrupting.discard(task_id)
        faults.reach("worker.before_result")
        if definition.max_calls:
            made = self._calls_made[definition.function_id] = (
                self._calls_made.get(definition.function_id, 0) + 1
            )
            if made == definition.max_calls:
                self._connection.send((m.RETIRE, "max_calls"))
        self._packer.send(outcome)

    def _invoke(self, message: Message) -> None:
        assert self._actor is not None
        self._running = message[1]
        try:
            self._actor.run(message)
        except KeyboardInterrupt:
            pass  # a cancellation that arrived after the call had ended
        finally:
            self._running = 0
            self._interrupting.discard(message[1])

    def _create_actor(self, message: Message) -> None:
        """Run an actor's constructor and report the result."""
        _, actor_id, spec, args, arg_values, gpu_ids, restarted = message
        context = TaskContext(
            name=f"{spec.class_name}.__init__",
            actor_id=actor_id,
            actor_name=spec.name,
            was_restarted=restarted,
            group_id=spec.group[0] if spec.group else 0,
            captured_group_id=spec.group[0] if spec.group and spec.captures else 0,
            resources=spec.resources,
            gpu_ids=gpu_ids,
            threads=thread_limits.threads_for(dict(spec.resources).get("CPU")),
            record=spec.record,
        )
        failed: bytes | None = None
        self.context = context
        CURRENT.set(CurrentTask(0, context))
        termination.prepare()
        try:
            cls = self.load(spec.class_id)
            self._use(context)
            positional, keyword = load_arguments(args, arg_values)
            actor = ActorExecutor(
                self._connection, self._packer, spec, context, self._cancelled_calls
            )
            actor.construct(cls, positional, keyword)
        except (ActorExit, SystemExit) as leaving:
            if isinstance(leaving, SystemExit) and leaving.code != 0:
                exit_process(self._connection, leaving)
            self._connection.send((m.RETIRE, "exit_actor"))
            return
        except BaseException as error:
            failed = self._packer.error(error, context.name)
        faults.reach("worker.before_constructed")
        with self._connection.guard:
            self._actor = None if failed else actor
        self._connection.send((m.CONSTRUCTED, actor_id, failed))
        if self._actor is not None and spec.is_async:
            self._actor.serve(self._inbox)
            self._exit()

    def _context(
        self, definition_id: int, definition: TaskSpec, gpu_ids: tuple[str, ...]
    ) -> TaskContext:
        key = (definition_id, gpu_ids)
        context = self._contexts.get(key)
        if context is None:
            group = definition.group[0] if definition.group else 0
            context = self._contexts[key] = TaskContext(
                name=definition.name,
                group_id=group,
                captured_group_id=group if definition.captures else 0,
                resources=definition.resources,
                gpu_ids=gpu_ids,
                threads=thread_limits.threads_for(dict(definition.resources).get("CPU")),
            )
        return context

    def load(self, function_id: int) -> Any:
        """Return the function or class with this id."""
        if self._setup_failure is not None:
            raise self._setup_failure
        state, self._new_program = self._new_program, None
        if state is not None:
            self._program.apply(state)
        function = self._functions.get(function_id)
        if function is None:
            function = self._functions[function_id] = pickle.loads(self._code.pop(function_id))
        if state is not None:
            self._program.code_loaded()
        return function

    def _use(self, context: TaskContext) -> None:
        """Let libraries find the GPUs and the number of CPUs of a task or actor."""
        if context.gpu_ids != self._gpu_ids:
            self._gpu_ids = context.gpu_ids
            if not settings.keeps_cuda_visible_devices():
                gpus.show_only(context.gpu_ids)
        if context.threads != self._threads:
            self._threads = context.threads
            thread_limits.limit(context.threads)
