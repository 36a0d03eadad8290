"""What a worker does with its work: takes it in order, runs it, tells the hub.

Messages arrive on whichever thread reads the channel (`accept`, under the link's guard); the main
thread takes them from the inbox. Tasks and the calls of an ordinary actor run in the main thread,
one at a time.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Any

from syncline import faults
from syncline.core import termination
from syncline.core.embedded import messages as m
from syncline.core.embedded.calls import ActorExit, Calls
from syncline.core.embedded.engine import CURRENT, Current, Work
from syncline.core.embedded.invocation import arguments, cancelled, worth_a_retry
from syncline.core.embedded.link import RemoteLink
from syncline.core.embedded.messages import Message, TaskSpec, Value
from syncline.core.embedded.pump import Waiter
from syncline.core.embedded.results import Results


class Executor:
    """One worker's work."""

    def __init__(self, link: RemoteLink, number: int, setup_failure: Exception | None) -> None:
        """`setup_failure`: why the worker cannot run anything; every task then fails with it."""
        self._link = link
        self._number = number
        self._setup_failure = setup_failure
        self._inbox: deque[Message] = deque()
        self._idle: Waiter | None = None
        self._code: dict[int, bytes] = {}
        self._functions: dict[int, Any] = {}
        self._plans: dict[int, TaskSpec] = {}
        self._calls_made: dict[int, int] = {}  # by function, where `max_calls` says so
        self._works: dict[tuple[int, tuple[str, ...]], Work] = {}
        self._main = threading.main_thread()
        self._running = 0  # the task or call whose user code the main thread runs
        self._interrupting = 0  # the task that somebody cancels
        self._calls: Calls | None = None
        self._results = Results(link, lambda: self.new_id())
        self._gpu_ids: tuple[str, ...] | None = None
        self.new_id: Callable[[], int] = lambda: 0
        self.work = Work()
        """What this process does: the actor that it is, or its latest task. For threads that user
        code has started.
        """

    # -- any thread

    def accept(self, message: Message) -> None:
        """Take a message from the hub, under the link's guard."""
        kind = message[0]
        if kind == m.DEFINE:
            self._code[message[1]] = message[2]
        elif kind == m.DESCRIBE:
            self._plans[message[1]] = message[2]
        elif kind == m.STOP_TASK:
            self._link.callbacks.append((self._stop, (message[1],)))
        elif kind == m.INVOKE and self._calls is not None and self._calls.takes_directly:
            self._calls.take(message)
        else:
            self._inbox.append(message)
            idle = self._idle
            if idle is not None:
                self._idle = None
                idle.settle()
            elif (
                kind == m.RUN and self._main.ident in self._link.waiting
            ):  # it was under way when the hub heard that this worker waits
                self._link.callbacks.append((self._give_back, ()))

    def take_back(self) -> list[int]:
        """The tasks that have not begun, which this worker gives up because its current one takes
        long.
        """
        given: list[int] = []
        while self._inbox and self._inbox[-1][0] == m.RUN:
            try:
                message = self._inbox.pop()
            except IndexError:  # the main thread was quicker
                break
            if message[0] != m.RUN:
                self._inbox.append(message)
                break
            given.append(message[1])
        given.reverse()
        return given

    def tend(self) -> None:
        """Called by the background thread while the main thread is busy."""
        if self._running and self._inbox and self._calls is None:
            self._give_back()
        self._link.flush_references()

    def _give_back(self) -> None:
        given = self.take_back()
        if given:
            self._link.send((m.RETURNED, given))

    def on_interrupt(self, number: int, frame: FrameType | None) -> None:
        """SIGINT in the main thread: somebody cancelled a task, perhaps one that has just ended."""
        if self._running and self._interrupting == self._running:
            raise KeyboardInterrupt

    def leave_actor(self) -> None:
        """`exit_actor()`: unwinds to the call, which tells the hub."""
        raise ActorExit

    def _stop(self, task_id: int) -> None:
        for message in list(self._inbox):
            if message[0] in (m.RUN, m.INVOKE) and message[1] == task_id:
                try:
                    self._inbox.remove(message)
                except ValueError:
                    break  # it has just begun
                self._tell(task_id, [], cancelled(), False, time.time())
                return
        if self._calls is not None and self._calls.stop(task_id):
            return
        self._interrupting = task_id
        if self._running == task_id and self._main.ident is not None:
            signal.pthread_kill(self._main.ident, signal.SIGINT)

    # -- the main thread

    def serve(self) -> None:
        """Work until the hub lets this worker go."""
        inbox = self._inbox
        while True:
            try:
                message = inbox.popleft()
            except IndexError:
                self._rest()
                continue
            kind = message[0]
            if kind == m.RUN:
                self._run(message)
            elif kind == m.INVOKE:
                self._invoke(message)
            elif kind == m.ACTOR:
                self._become(message)
            elif kind == m.LEAVE:
                self._leave()

    def _rest(self) -> None:
        waiter = Waiter()
        self._idle = waiter
        if self._inbox:
            self._idle = None
            return
        self._link.pump.wait(waiter)

    def _leave(self) -> None:
        """End politely: what was registered to run at exit runs."""
        if self._calls is not None:
            self._calls.close()
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                continue
        os._exit(0)

    def _run(self, message: Message) -> None:
        _, task_id, plan_id, args, top, extra, gpu_ids = message
        faults.reach("worker.before_task")
        plan = self._plans[plan_id]
        ids = (task_id, *extra)
        self.work = self._work(plan_id, plan, gpu_ids)
        token = CURRENT.set(Current(task_id, self.work))
        started = time.time()
        values: list[Value] = []
        failed: bytes | None = None
        retry = False
        try:
            function = self.load(plan.function_id)
            self._use_gpus(gpu_ids)
            positional, keyword = arguments(args, top)
            try:
                self._running = task_id
                result = function(*positional, **keyword)
                if plan.mode != m.ONE:
                    values = self._results.pack(result, plan.name, plan.mode, plan.num_returns, ids)
            finally:
                self._running = 0
            if plan.mode == m.ONE:
                values = self._results.pack(result, plan.name, m.ONE, 1, ids)
        except BaseException as error:
            failed, retry = self._failure(error, task_id, plan.name, plan.retry_on)
        result, positional, keyword = (
            None,
            (),
            {},
        )  # what they refer to is dropped before the hub hears of the end
        CURRENT.reset(token)
        faults.reach("worker.before_result")
        if plan.max_calls:
            made = self._calls_made[plan.function_id] = (
                self._calls_made.get(plan.function_id, 0) + 1
            )
            if made == plan.max_calls:
                self._link.send((m.RETIRE, "max_calls"))
        self._tell(task_id, values, failed, retry, started)

    def _invoke(self, message: Message) -> None:
        assert self._calls is not None
        self._running = message[1]
        try:
            self._calls.run(message)
        except KeyboardInterrupt:
            pass  # a cancellation that came when the call had ended
        finally:
            self._running = 0

    def _become(self, message: Message) -> None:
        """Become an actor: run its constructor, and tell how that went."""
        _, actor_id, spec, args, top, gpu_ids, restarted = message
        work = Work(
            name=f"{spec.class_name}.__init__",
            actor_id=actor_id,
            actor_name=spec.name,
            was_restarted=restarted,
            group_id=spec.group[0] if spec.group else 0,
            captured_group_id=spec.group[0] if spec.group and spec.captures else 0,
            resources=spec.resources,
            gpu_ids=gpu_ids,
            record=spec.record,
        )
        failed: bytes | None = None
        self.work = work
        CURRENT.set(Current(0, work))
        termination.prepare()
        try:
            cls = self.load(spec.class_id)
            self._use_gpus(gpu_ids)
            positional, keyword = arguments(args, top)
            calls = Calls(self._link, self._results, spec, work)
            calls.construct(cls, positional, keyword)
        except BaseException as error:
            failed = self._results.error(error, work.name)
        faults.reach("worker.before_constructed")
        self._start_calls(None if failed else calls)
        self._link.send((m.CONSTRUCTED, actor_id, failed))
        if self._calls is not None and self._calls.takes_main_thread:
            self._calls.serve_loop(self._inbox)
            self._leave()

    def _start_calls(self, calls: Calls | None) -> None:
        with self._link.guard:
            self._calls = calls

    def _failure(
        self, error: BaseException, task_id: int, name: str, retry_on: bytes | None
    ) -> tuple[bytes, bool]:
        if isinstance(error, KeyboardInterrupt) and self._interrupting == task_id:
            return cancelled(), False
        return self._results.error(error, name), worth_a_retry(error, retry_on)

    def _tell(
        self, task_id: int, values: list[Value], failed: bytes | None, retry: bool, started: float
    ) -> None:
        self._link.send((m.DONE, task_id, values, failed, retry, started, time.time()))
        self._results.sent(values)

    def _work(self, plan_id: int, plan: TaskSpec, gpu_ids: tuple[str, ...]) -> Work:
        key = (plan_id, gpu_ids)
        work = self._works.get(key)
        if work is None:
            group = plan.group[0] if plan.group else 0
            work = self._works[key] = Work(
                name=plan.name,
                group_id=group,
                captured_group_id=group if plan.captures else 0,
                resources=plan.resources,
                gpu_ids=gpu_ids,
            )
        return work

    def load(self, function_id: int) -> Any:
        """The function or class of that id."""
        if self._setup_failure is not None:
            raise self._setup_failure
        function = self._functions.get(function_id)
        if function is None:
            function = self._functions[function_id] = pickle.loads(self._code.pop(function_id))
        return function

    def _use_gpus(self, gpu_ids: tuple[str, ...]) -> None:
        if gpu_ids != self._gpu_ids:
            self._gpu_ids = gpu_ids
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpu_ids)
