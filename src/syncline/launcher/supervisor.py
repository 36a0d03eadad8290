"""`Supervisor`: the launcher's loop between template, agent, workers and console.

It has no policy: the agent decides what starts, stops and fails. It passes requests and notices on,
copies output, forwards signals, and lets an observer keep the record.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Mapping
from typing import Protocol

from syncline.core.embedded import fork_server_messages
from syncline.core.embedded.fork_server_messages import WorkerEnded, WorkerStarted
from syncline.core.host import kill_group
from syncline.launcher.messages import (
    AgentFailed,
    GroupFailed,
    RankEnded,
    RankSeen,
    RankStarted,
    StartRank,
)
from syncline.launcher.output import RankOutput, Sink
from syncline.launcher.rank_memory import RankMemory
from syncline.launcher.script_process import WorkerProcess
from syncline.launcher.template import StartedAgent, Template, standard_input
from syncline.records import dataclass

TICK_S = 0.5
"""Longest time between two calls of the observer."""
ABORT_DELAY_S = 2.0
"""Seconds after which the agent learns that native code has aborted a rank; less if all have ended.

Gloo aborts a rank whose peers make another call. The operation of these peers then fails, and they
write their last calls, which show the difference, before the agent ends them.
"""
TEMPLATE_LOST = AgentFailed(
    reason=(
        "the process that starts the workers has ended, and the workers with it: it was killed by "
        "a person, a job scheduler, or the system when memory ran out"
    ),
    traceback="",
)


@dataclass(frozen=True, kw_only=True)
class RunningRank:
    """One worker process."""

    request: StartRank
    pid: int
    output: RankOutput
    memory: RankMemory | None = None
    """In which it writes how it spends its time; None if nothing is recorded."""


class Observer(Protocol):
    """Follows the workers for the record and for people."""

    def log(self, request: StartRank) -> Sink | None:
        """Return a function that takes the output of a worker that starts; None for no log."""

    def started(self, workers: Mapping[int, RunningRank], restarts: int) -> None:
        """All workers of a start run; the mapping is by rank."""

    def ended(self, worker: RunningRank, exitcode: int) -> None:
        """A worker ended."""

    def seen(self, found: RankSeen) -> None:
        """The state of a rank of another node came."""

    def tick(self, workers: Mapping[int, RunningRank]) -> None:
        """Time passes."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """End of a job."""

    exitcode: int
    """Exit code of the agent, or the negative number of a signal."""
    failed: GroupFailed | None
    refused: AgentFailed | None
    workers: Mapping[int, RunningRank]
    """Workers of the last start by rank."""


class Supervisor:
    """One job on this node.

    Args:
        template: Starts the processes.
        agent: The agent, which starts.
        observer: Follows the workers.
        variables: Environment variables of the job.
        signals: Signals that are passed to the agent.
    """

    def __init__(
        self,
        template: Template,
        agent: StartedAgent,
        observer: Observer,
        variables: Mapping[str, str],
        signals: tuple[signal.Signals, ...],
    ) -> None:
        self._template = template
        self._observer = observer
        self._variables = dict(variables)
        self._signals = signals
        self._selector = selectors.DefaultSelector()
        template.register(self._selector)
        self._channel = agent.channel
        self._selector.register(self._channel, selectors.EVENT_READ, self._channel)
        self._agent: tuple[int, int | None] = (agent.number, None)  # with the process id
        self._exitcode: int | None = None
        self._starting: dict[int, tuple[StartRank, RankOutput, RankMemory | None]] = {}  # by number
        self._running: dict[int, RunningRank] = {}  # by number
        self._group: dict[int, RunningRank] = {}  # the last start, by rank
        self._outputs: list[RankOutput] = []
        self._failed: GroupFailed | None = None
        self._refused: AgentFailed | None = None
        self._pending: list[int] = []  # signals that came before the agent
        self._ends: list[RankEnded] = []  # of which the agent does not know yet
        self._tell_at = 0.0

    def run(self) -> Outcome:
        """Serve until the agent has ended."""
        for number in self._signals:
            signal.signal(number, self._forward)
        while self._exitcode is None:
            left_s = self._tell_at - time.monotonic() if self._ends else TICK_S
            for key, _ in self._selector.select(min(TICK_S, max(0.0, left_s))):
                self._serve(key)
            self._tell_ends()
            self._observer.tick(self._group)
        for output in self._outputs:
            output.drain()
            output.close()
        return Outcome(
            exitcode=self._exitcode, failed=self._failed, refused=self._refused, workers=self._group
        )

    def _serve(self, key: selectors.SelectorKey) -> None:
        if isinstance(key.data, RankOutput):
            if key.fileobj in self._selector.get_map():  # an earlier event may have closed it
                key.data.read(key.fd)
        elif key.data is self._template:
            self._take(self._template.receive())
        else:
            received = fork_server_messages.receive(self._channel)
            if received is None:
                self._selector.unregister(self._channel)
            else:
                self._answer(received[0])

    # -- the agent

    def _answer(self, message: object) -> None:
        if isinstance(message, StartRank):
            self._start(message)
        elif isinstance(message, RankSeen):
            self._observer.seen(message)
        elif isinstance(message, GroupFailed):
            self._failed = message
        elif isinstance(message, AgentFailed):
            self._refused = message

    def _start(self, request: StartRank) -> None:
        if len(self._group) == request.local_world_size:
            self._group = {}
        log = self._observer.log(request)
        output = RankOutput(request.rank, self._selector, log)
        memory = None if log is None else RankMemory()
        self._outputs.append(output)
        variables = {**self._variables, **request.variables}
        for name in request.removed:
            variables.pop(name, None)
        stdout, stderr = output.open(request.stdout, request.stderr)
        work = WorkerProcess(
            command=request.command,
            function=request.work,
            directory=os.getcwd(),
            variables=variables,
            launcher_pid=os.getpid(),
            world_size=request.world_size,
        )
        others = () if memory is None else (memory.fd,)
        number = self._template.launch(work, (standard_input(), stdout, stderr), others)
        os.close(stdout)
        os.close(stderr)
        self._starting[number] = request, output, memory

    # -- processes

    def _take(self, message: object | None) -> None:
        if isinstance(message, WorkerStarted):
            self._started(message)
        elif isinstance(message, WorkerEnded):
            self._ended(message)
        elif message is None:
            self._exitcode, self._refused = 1, TEMPLATE_LOST
            for worker in self._running.values():
                kill_group(worker.pid)

    def _started(self, message: WorkerStarted) -> None:
        number, pid = message.number, message.pid
        if number == self._agent[0]:
            self._agent = number, pid
            for pending in self._pending:
                os.kill(pid, pending)
            return
        request, output, memory = self._starting.pop(number)
        worker = RunningRank(request=request, pid=pid, output=output, memory=memory)
        self._running[number] = self._group[request.rank] = worker
        self.send(RankStarted(local_rank=request.local_rank, pid=pid))
        if len(self._group) == request.local_world_size:
            self._observer.started(self._group, request.restarts)

    def _ended(self, message: WorkerEnded) -> None:
        exitcode = os.waitstatus_to_exitcode(message.status)
        if message.number == self._agent[0]:
            self._read_last_messages()
            self._exitcode = exitcode
            return
        worker = self._running.pop(message.number)
        worker.output.drain()
        if exitcode == -signal.SIGABRT and worker.memory is not None and not self._ends:
            self._tell_at = time.monotonic() + ABORT_DELAY_S
        self._ends.append(RankEnded(pid=message.pid, exitcode=exitcode))
        self._observer.ended(worker, exitcode)
        if worker.memory is not None:
            worker.memory.close()
        self._tell_ends()

    def _tell_ends(self) -> None:
        if self._running and time.monotonic() < self._tell_at:
            return
        for each in self._ends:
            self.send(each)
        self._ends.clear()

    def _read_last_messages(self) -> None:
        """Read the messages that the agent sent before it ended."""
        self._channel.setblocking(False)
        try:
            while (received := fork_server_messages.receive(self._channel)) is not None:
                self._answer(received[0])
        except OSError:
            pass

    def send(self, message: object) -> None:
        """Send a message to the agent, on the thread of `run`."""
        try:
            fork_server_messages.send(self._channel, message)
        except OSError:
            pass  # the agent has died; the template notices that next

    def stop(self) -> None:
        """Let the agent end the job as after SIGTERM."""
        self._forward(signal.SIGTERM, None)

    def _forward(self, number: int, frame: object) -> None:
        pid = self._agent[1]
        if pid is None:
            self._pending.append(number)
            return
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
