"""`RunObserver`: the run record of a job on this node, and what people see while it runs.

The record has the kind "train": rank logs, attempts with their workers, failures, resource usage,
stalls, and the outcome. Nodes other than the first write records of their own, `NAME-node-1`. A
record that cannot be written costs a warning, never the job.
"""

from __future__ import annotations

import argparse
import codecs
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from syncline import settings, system
from syncline.core import control
from syncline.launcher import failure_text
from syncline.launcher.collective_watch import (
    LOOK_INTERVAL_S,
    CollectiveWatch,
    Notice,
    main_thread_cpu_s,
)
from syncline.launcher.live_actions import LiveActions
from syncline.launcher.messages import Failure, RankSeen, StartRank
from syncline.launcher.options import default_name
from syncline.launcher.output import Sink
from syncline.launcher.rank_verdicts import RankVerdicts
from syncline.launcher.supervisor import RunningRank
from syncline.optional import deferred
from syncline.runs.json_values import Record
from syncline.runs.rank_log import RankLog
from syncline.runs.record_files import Files, LocalFiles
from syncline.runs.run_directory import RunDirectory
from syncline.runs.secrets import masked
from syncline.runs.usage import Sampler

if TYPE_CHECKING:
    import psutil
else:
    psutil = deferred("psutil")

SAMPLE_INTERVAL_S = 5.0
FIRST_SAMPLE_S = 1.0
DETAILS_AFTER_S = 3.0
"""Seconds until the packages of the environment are listed, which competes with the start."""
FLUSH_INTERVAL_S = 10.0
"""Seconds between two uploads of a record on remote storage."""


class RunObserver:
    """Keeps the record of one job.

    Args:
        options: The command line.
        clock: Returns monotonic seconds.
    """

    def __init__(
        self, options: argparse.Namespace, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._clock = clock
        self._record: RunDirectory | None = None
        self._is_off = options.no_record
        self._is_remote = False
        self._logs: list[RankLog] = []
        self._ended: dict[int, tuple[RunningRank, int]] = {}
        self._attempt = 0
        self._samplers: dict[int, Sampler] = {}  # by process id
        self._usage: dict[int, Record] = {}  # the latest, by process id
        self._next_sample = self._next_flush = self._details_at = float("inf")
        self._withdraw: Callable[[], None] = lambda: None
        self._watched: Mapping[int, int] = {}  # process ids by rank
        self._is_closed = threading.Event()
        self._verdicts = RankVerdicts(clock)
        self._live = LiveActions(lambda: self.stop())
        self._live.diagnosis = self._verdicts.to_json
        self.stop: Callable[[], None] = lambda: None
        """Ends the job as SIGTERM does; set by the launcher."""
        self.send: Callable[[object], None] = lambda message: None
        """Sends a message to the agent; set by the launcher."""
        self._name = ""  # of the record; empty without one

    # -- the supervisor's observer

    def log(self, request: StartRank) -> Sink | None:
        """Return a function that appends output to the log of the rank."""
        self._open(request.group_rank)
        if self._record is None:
            return None
        log = RankLog(self._record.log_path(f"rank-{request.rank}.log"))
        self._logs.append(log)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")

        def append(data: bytes) -> None:
            log.write(decoder.decode(data))

        return append

    def started(self, workers: Mapping[int, RunningRank], restarts: int) -> None:
        """Record an attempt, and the failure of the one before."""
        if self._attempt:
            self._restarted(restarts)
        self._attempt += 1
        self._ended.clear()
        memories = {rank: each.memory for rank, each in workers.items() if each.memory is not None}
        pids = {rank: each.pid for rank, each in workers.items()}
        request = next(iter(workers.values())).request
        self._verdicts.started(memories, pids, request.world_size, request.group_rank)
        if self._attempt == 1:
            threading.Thread(target=self._look, name="syncline-stalls", daemon=True).start()
        self._live.workers = {
            rank: _description(worker) for rank, worker in sorted(workers.items())
        }
        self._event(
            "attempt",
            number=self._attempt,
            first_report=0,
            workers=list(self._live.workers.values()),
        )
        self._samplers, self._usage = {}, {}
        self._next_sample = self._clock() + FIRST_SAMPLE_S

    def ended(self, worker: RunningRank, exitcode: int) -> None:
        """Record how a worker ended."""
        rank = worker.request.rank
        self._ended[rank] = worker, exitcode
        self._verdicts.ended(rank, exitcode)
        self._send_states()
        spent = self._spent(worker)
        if self._record is not None and spent is not None:
            with suppress(OSError):
                usage = self._usage.get(worker.pid, {})
                self._record.sample(rank, self._attempt, worker.pid, usage, spent)

    def tick(self, workers: Mapping[int, RunningRank]) -> None:
        """Sample the workers and upload."""
        self._send_states()
        now = self._clock()
        alive = {rank: each for rank, each in workers.items() if rank not in self._ended}
        if now >= self._next_sample:
            self._next_sample = now + SAMPLE_INTERVAL_S
            self._sample(alive)
        self._watched = {rank: each.pid for rank, each in alive.items()}
        if self._record is None:
            return
        if now >= self._details_at:
            self._details_at = float("inf")
            self._record.write_details_soon()
        if self._is_remote and now >= self._next_flush:
            self._next_flush = now + FLUSH_INTERVAL_S
            with suppress(OSError):
                self._record.flush()

    def seen(self, found: RankSeen) -> None:
        """Take the state of a rank of another node."""
        self._verdicts.seen(found)

    # -- ends

    def failed(self, failures: Sequence[Failure], tails: Mapping[int, str]) -> None:
        """Record the failure of the last attempt."""
        texts = failure_text.event_texts(failures, tails)
        self._tell(self._verdicts.failed(failures))
        self._event("failure", attempt=self._attempt, **texts)

    def close(self, status: str, error: str | None) -> None:
        """Complete the record."""
        self._is_closed.set()
        self._withdraw()
        for log in self._logs:
            log.close()
        record = self._record
        if record is None:
            return
        self._event(status)
        try:
            record.write_outcome(status, error)
            record.close()
        except OSError as problem:
            self._give_up(problem)

    def remark(self) -> str:
        """Return lines with the verdict that still holds, if any, and the place of the output;
        empty without a record.
        """
        current = self._verdicts.current
        verdict = "" if current is None else f"\n{current.text}"
        place = f"\nOutput of all ranks: syncline logs {self._name}" if self._name else ""
        return verdict + place

    # -- parts

    def _send_states(self) -> None:
        for each in self._verdicts.unsent():
            self.send(each)

    def _open(self, node: int) -> None:
        if self._record is not None or self._is_off:
            return
        try:
            files, self._name, path = _place(self._options, node)
            self._record = RunDirectory(files)
            self._is_remote = files.local_path is None
            config = {
                name: value for name, value in vars(self._options).items() if value is not None
            }
            self._record.write_run(self._name, {"launcher": masked(config)}, detailed=False)
            self._record.event("started", continued=False, next_report=0)
        except (OSError, ValueError) as error:
            self._give_up(error)
            return
        self._details_at = self._clock() + DETAILS_AFTER_S
        self._next_flush = self._clock() + FLUSH_INTERVAL_S
        self._live.files = files
        self._withdraw = control.serve(f"run:{path}", self._live.answer)

    def _give_up(self, error: Exception) -> None:
        self._is_off, self._record, self._name = True, None, ""
        print(f"syncline run: the run is not recorded: {error}", file=sys.stderr, flush=True)

    def _event(self, event: str, **fields: object) -> None:
        if self._record is not None:
            try:
                self._record.event(event, **fields)
            except OSError as error:
                self._give_up(error)

    def _restarted(self, restarts: int) -> None:
        failures = [_failure(each, code) for each, code in self._ended.values() if code]
        tails = {rank: each.output.tail() for rank, (each, _) in self._ended.items()}
        if not failures:  # other nodes have joined or left
            return
        self.failed(failures, tails)
        script = Path(self._options.training_script).name
        text = failure_text.failure_text(script, failures, tails)
        print(
            f"syncline run: {text}\nThe workers were restarted ({restarts} of "
            f"{self._options.max_restarts}).",
            file=sys.stderr,
            flush=True,
        )

    def _look(self) -> None:
        """Look for slow ranks and stalls until the end, on a separate thread: stopped workers
        answer slowly.
        """
        busy_s = main_thread_cpu_s if system.IS_LINUX else self._verdicts.busy_s
        watch = CollectiveWatch(self._options.hang_report_s, busy_s)
        while not self._is_closed.wait(LOOK_INTERVAL_S):
            self._tell(self._verdicts.update())
            stall = watch.update(self._watched, self._clock())
            if stall is not None:
                self._tell([stall])

    def _tell(self, notices: Sequence[Notice]) -> None:
        for each in notices:
            if self._is_closed.is_set():
                return
            self._event(each.event, **each.fields)
            if each.text:
                print(f"syncline run: {each.text}", file=sys.stderr, flush=True)

    def _sample(self, workers: Mapping[int, RunningRank]) -> None:
        if self._record is None:
            return
        for rank, worker in workers.items():
            pid = worker.pid
            gpu_ids = self._live.workers[rank]["gpu_ids"] if rank in self._live.workers else ()
            try:
                if pid not in self._samplers:
                    self._samplers[pid] = Sampler(pid, gpu_ids)  # type: ignore[arg-type]
                usage = self._usage[pid] = self._samplers[pid].sample()
                self._record.sample(rank, self._attempt, pid, usage, self._spent(worker))
            except (psutil.Error, OSError):
                continue

    def _spent(self, worker: RunningRank) -> dict[str, float] | None:
        times = None if worker.memory is None else worker.memory.times()
        waited_for = self._verdicts.waited_for(worker.request.rank)
        return times if times is None or waited_for is None else {**times, "waited_for": waited_for}


def _place(options: argparse.Namespace, node: int) -> tuple[Files, str, str]:
    """Create a directory for the record; return its files, its name, and its path.

    Raises:
        OSError: It cannot be created.
        ValueError: The URI is unknown.
    """
    script = options.training_script
    name = options.name or default_name(script if options.module else Path(script).stem)
    name += f"-node-{node}" if node else ""
    parent = options.storage_path or settings.storage_path()
    if "://" in parent:
        from syncline.launcher.remote_record import remote_files  # loads pyarrow

        files, directory = remote_files(parent, name)
        return files, name, directory
    path = Path(settings.local_path(parent), name)
    path.mkdir(parents=True, exist_ok=bool(options.name))
    return LocalFiles(path), name, str(path)


def _description(worker: RunningRank) -> dict[str, object]:
    """Return the fields that records have for a worker."""
    request, host = worker.request, socket.gethostname()
    return {
        "rank": request.rank,
        "node_id": host,
        "node_ip": request.variables.get("MASTER_ADDR", "") if not request.group_rank else host,
        "hostname": host,
        "pid": worker.pid,
        "local_rank": request.local_rank,
        "local_world_size": request.local_world_size,
        "node_rank": request.group_rank,
        "gpu_ids": _gpu_ids(request),
    }


def _gpu_ids(request: StartRank) -> list[str]:
    """Return the GPU that a worker uses by convention: that of its local rank."""
    visible = request.variables.get("CUDA_VISIBLE_DEVICES", "")
    names = [name.strip() for name in visible.split(",") if name.strip()]
    if not names:
        names = sorted(path.name[6:] for path in Path("/dev").glob("nvidia[0-9]*"))
    if request.local_rank < len(names):
        return [names[request.local_rank]]
    return names[:1] if len(names) == 1 else []


def _failure(worker: RunningRank, exitcode: int) -> Failure:
    request = worker.request
    return Failure(
        rank=request.rank,
        local_rank=request.local_rank,
        pid=worker.pid,
        exitcode=exitcode,
        time=time.time(),
        traceback="",
    )
