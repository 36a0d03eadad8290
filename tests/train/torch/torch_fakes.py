"""A training session without a run behind it, and processes that each have one."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from syncline.train.checkpoint import Checkpoint
from syncline.train.errors import PreemptionInfo
from syncline.train.resume_state import Readers
from syncline.train.session import set_session

LIMIT_S = 120
IMPORTED_ONCE = (
    "syncline.train.torch",
    "torch._dynamo",
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
)


@dataclass(eq=False, kw_only=True)
class FakeSession:
    """The facts of a session; nothing that reports."""

    world_rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    node_rank: int = 0
    gpu_ids: tuple[str, ...] = ()
    use_gpu: bool = False
    local_mode: bool = False
    saved: Checkpoint | None = None
    """Where its readers go on."""
    preemption: PreemptionInfo | None = None
    communication_meters: list[Any] = field(default_factory=list, init=False)
    snapshots: None = None
    readers: Readers = field(init=False)

    def __post_init__(self) -> None:
        self.readers = Readers(rank=self.world_rank, world_size=self.world_size, saved=self.saved)

    def follow_calls(self, source: Any) -> None:
        """Ignore it, as sessions without a controller do."""

    def follow_inputs(self, has_bad_inputs: Any) -> None:
        """Ignore it, as sessions without a controller do."""

    def get_preemption_info(self) -> PreemptionInfo | None:
        return self.preemption


@contextmanager
def session(**facts: Any) -> Iterator[FakeSession]:
    """Run a block inside a session."""
    fake = FakeSession(**facts)
    set_session(fake)
    try:
        yield fake
    finally:
        set_session(None)


@dataclass(frozen=True, kw_only=True)
class FakeWorker:
    """One place in a group, as `syncline.train.backend.Worker`."""

    rank: int
    node_id: str = "node"
    node_ip: str = "127.0.0.1"
    hostname: str = "host"
    pid: int = 0
    local_rank: int = 0
    local_world_size: int = 1
    node_rank: int = 0
    gpu_ids: Sequence[str] = ()


class ProcessGroupOfFakes:
    """`WorkerGroup` with one process per rank, each in a `FakeSession`; torch is imported once for
    all of them.
    """

    def __init__(self, world_size: int) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(IMPORTED_ONCE))
        self.workers = [
            FakeWorker(rank=rank, local_rank=rank, local_world_size=world_size)
            for rank in range(world_size)
        ]
        self._pipes: list[Connection] = []
        self._processes = []
        for rank in range(world_size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, rank, world_size))
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def execute_single(self, rank: int, fn: Callable[..., Any], *args: Any) -> Any:
        self._pipes[rank].send((fn, args))
        assert self._pipes[rank].poll(LIMIT_S), f"rank {rank} does not answer"
        result, error = self._pipes[rank].recv()
        if error is not None:
            raise RuntimeError(error)
        return result

    def execute(self, fn: Callable[..., Any], *args: Any) -> list[Any]:
        with ThreadPoolExecutor(len(self.workers)) as pool:
            return list(
                pool.map(
                    lambda rank: self.execute_single(rank, fn, *args), range(len(self.workers))
                )
            )

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(LIMIT_S)
            process.kill()


def _serve(pipe: Connection, rank: int, world_size: int) -> None:
    set_session(
        FakeSession(
            world_rank=rank, world_size=world_size, local_rank=rank, local_world_size=world_size
        )
    )
    while True:
        try:
            fn, args = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((fn(*args), None))
        except Exception:
            pipe.send((None, traceback.format_exc()))
