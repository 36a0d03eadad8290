"""`streaming_split`: a dataset -> as many iterators as there are consumers."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

import pyarrow as pa

from syncline.core import api
from syncline.core.error_frames import unpack_error
from syncline.data.columnar import block as blocks
from syncline.data.context import DataContext
from syncline.data.execute.worker_handles import same_node_options
from syncline.data.iterate.batch_source import EMPTY_TABLE, BatchSource
from syncline.data.iterate.batching import BatchOptions, Pass, RankRows
from syncline.data.iterate.cursor import Cursor
from syncline.data.iterate.sharding import equal_mode
from syncline.data.iterate.split_coordinator import SplitCoordinator, SplitTimeouts
from syncline.data.iterate.split_rendezvous import (
    CoordinatorDiedError,
    Fetched,
    Join,
    Joined,
    Rejected,
    Share,
    this_process,
)
from syncline.data.iterator import DataIterator
from syncline.data.plan.nodes import HeldBlock
from syncline.data.plan.signature import signature
from syncline.exceptions import ActorDiedError, ObjectLostError

if TYPE_CHECKING:
    from syncline.data.dataset import Dataset, MaterializedDataset

# For every rank a call that waits for rows, one that was left behind, its leaving and its sign of
# life.
_CALLS_PER_RANK = 4


def streaming_split(
    dataset: Dataset,
    n: int,
    *,
    equal: bool | str = False,
    locality_hints: Sequence[Any] | None = None,
    make_dataset: MakeDataset,
    limits: SplitTimeouts | None = None,
) -> list[DataIterator]:
    """Iterators over `n` parts of a dataset, for `n` consumers at the same time, in any processes.

    Args:
        dataset: What is read, once per pass for all consumers together.
        n: Number of consumers.
        equal: The last rows, too few for a batch of every consumer: False gives them to the first
            ones, True or "drop" gives equally many to each and drops the rest, "pad" repeats some
            of them so that each gets equally many.
        locality_hints: Nodes of the consumers; accepted, since blocks are shared through the object
            store. keep: Makes a dataset of blocks.
        limits: Time limits, for tests.

    ValueError and TypeError for impossible arguments. A loop begins when all consumers have begun
    theirs, and raises a `SplitError` where one of them cannot come or has died.
    """
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError(
            f"n={n!r} is of type {type(n).__name__}, not a number of consumers: give an int"
        )
    if n < 1:
        raise ValueError(f"n={n} consumers cannot share a dataset: give 1 or more")
    if locality_hints is not None and len(locality_hints) != n:
        raise ValueError(
            f"locality_hints has {len(locality_hints)} entries for {n} consumers: give one for each"
        )
    mode, plan = equal_mode(equal), signature(dataset._node)
    client = _coordinator(dataset, n, mode, limits or SplitTimeouts())
    return [
        DataIterator(
            SplitSource(
                client=client,
                rank=rank,
                world_size=n,
                signature=plan,
                data_context=dataset.context,
                make_dataset=make_dataset,
            )
        )
        for rank in range(n)
    ]


def _coordinator(dataset: Dataset, n: int, *options: Any) -> CoordinatorClient:
    if api.ensure_engine().is_local_mode:
        return LocalClient(SplitCoordinator(dataset, n, *options, in_process=True))
    actor = api.remote(num_cpus=0, max_concurrency=_CALLS_PER_RANK * n + 2, **same_node_options())(SplitCoordinator)
    return ActorClient(actor.remote(dataset, n, *options))


class CoordinatorClient(Protocol):
    """Calls methods of a coordinator. Picklable; the coordinator lives as long as there is a link
    to it.
    """

    def submit(self, method: str, *args: Any) -> Callable[[], Any]:
        """Call now, and return what waits for the result (once)."""
        ...

    def call(self, method: str, *args: Any) -> Any:
        """Call and wait."""
        ...

    def tell(self, method: str, *args: Any) -> None:
        """Call without waiting."""
        ...


class ActorClient:
    """The coordinator is an actor."""

    def __init__(self, actor: api.ActorHandle) -> None:
        self._actor = actor

    def submit(self, method: str, *args: Any) -> Callable[[], Any]:
        ref = getattr(self._actor, method).remote(*args)

        def wait() -> Any:
            try:
                return api.get(ref)
            except ActorDiedError as error:
                raise _coordinator_died(error) from error

        return wait

    def call(self, method: str, *args: Any) -> Any:
        return self.submit(method, *args)()

    def tell(self, method: str, *args: Any) -> None:
        # A loop may be dropped when the engine has ended, which a call would start again.
        if api.is_initialized():
            self.submit(method, *args)


class LocalClient:
    """The coordinator is an object of this process; copies of the link, however they came about,
    lead to the same one.
    """

    _coordinators: WeakValueDictionary[str, SplitCoordinator] = WeakValueDictionary()

    def __init__(self, coordinator: SplitCoordinator) -> None:
        self._key = secrets.token_hex(8)
        self._coordinator = coordinator
        self._coordinators[self._key] = coordinator

    def submit(self, method: str, *args: Any) -> Callable[[], Any]:
        return lambda: self.call(method, *args)

    def call(self, method: str, *args: Any) -> Any:
        return getattr(self._coordinator, method)(*args)

    def tell(self, method: str, *args: Any) -> None:
        self.call(method, *args)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_local_client, (self._key,))


def _coordinator_died(error: ActorDiedError) -> BaseException:
    if (
        error.exit_cause is None or error.pid is None
    ):  # it was not the process: it has never begun, say
        return error
    return CoordinatorDiedError(
        f"the process that reads the dataset for all ranks (pid {error.pid}) {error.exit_cause}, so the pass ends for all of them: split "
        "the dataset again, and continue all ranks from their last checkpoint, as a trainer with FailureConfig(max_failures=1) does"
    )


def _local_client(key: str) -> LocalClient:
    client = LocalClient.__new__(LocalClient)
    client._key, client._coordinator = key, LocalClient._coordinators[key]
    return client


logger = logging.getLogger("syncline")

HEARTBEAT_S = 10.0
"""How often a rank that the coordinator cannot see says that it lives."""

MakeDataset = Callable[[tuple[HeldBlock, ...], DataContext], "MaterializedDataset"]
"""Makes a dataset of blocks."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SplitSource(BatchSource):
    """One rank's share of a dataset. All ranks of a split begin each pass together."""

    client: CoordinatorClient
    rank: int
    world_size: int
    signature: str
    """Of the plan."""
    data_context: DataContext
    make_dataset: MakeDataset

    @property
    def plan(self) -> str:
        return self.signature

    @property
    def context(self) -> DataContext:
        return self.data_context

    def begin(self, options: BatchOptions, cursors: Sequence[Cursor]) -> Pass:
        token = secrets.token_hex(8)
        joined = self._join(
            Join(
                rank=self.rank,
                token=token,
                process=this_process(),
                options=options,
                cursors=tuple(cursors),
            )
        )
        stop = threading.Event()
        if joined.needs_heartbeats:
            threading.Thread(
                target=self._heartbeat, args=(token, stop), name="syncline-beat", daemon=True
            ).start()
        pass_start = joined.pass_start
        cursor = pass_start.cursor(
            plan=self.plan, rank=self.rank, windows=options.windows(pass_start.seed)
        )

        def cancel() -> None:
            stop.set()
            self.client.tell("leave", self.rank, token)

        return Pass(cursor=cursor, pieces=self._pieces(token, cursor), cancel=cancel)

    def schema(self) -> Any:
        return self.client.call("schema")

    def stats(self) -> str:
        text: str = self.client.call("stats")
        return text

    def materialize(self) -> MaterializedDataset:
        current = self.begin(BatchOptions(batch_size=None), ())
        try:
            tables = [
                blocks.compact(piece.table) for piece in current.pieces if piece.table.num_rows
            ]
        finally:
            current.cancel()
        held = [
            HeldBlock(
                value=api.put(table),
                num_rows=table.num_rows,
                size_bytes=blocks.size_bytes(table),
                schema=table.schema,
            )
            for table in tables
        ]
        return self.make_dataset(tuple(held), self.context)

    def retire(self) -> None:
        self.client.tell("retire", self.rank)

    def __repr__(self) -> str:
        return f"rank {self.rank} of {self.world_size}"

    def _join(self, join: Join) -> Joined:
        answer: Joined | Rejected | None = None
        try:
            while answer is None:
                answer = self.client.call("join", join)
        except BaseException:  # such as Ctrl-C: the others must not take this rank for waiting
            self.client.tell("leave", self.rank, join.token)
            raise
        if isinstance(answer, Rejected):
            self.client.tell("leave", self.rank, join.token)
            raise unpack_error(answer.error)
        return answer

    def _heartbeat(self, token: str, over: threading.Event) -> None:
        while not over.wait(HEARTBEAT_S):
            self.client.tell("heartbeat", self.rank, token)

    def _pieces(self, token: str, cursor: Cursor) -> Iterator[RankRows]:
        restart = cursor.restart
        wait = self.client.submit("fetch", self.rank, token)
        while True:
            answer: Fetched | Rejected = wait()
            if isinstance(answer, Rejected):
                raise unpack_error(answer.error)
            if not answer.ended:
                wait = self.client.submit("fetch", self.rank, token)
            for piece in self._pieces_of(answer, token):
                restart = piece.restart
                yield piece
            if answer.ended:
                self._log_dropped(cursor.epoch, answer.dropped_rows)
                yield RankRows(table=EMPTY_TABLE, restart=restart, total=answer.total)
                return

    def _pieces_of(self, fetched: Fetched, token: str) -> Iterator[RankRows]:
        last, table = None, EMPTY_TABLE
        for share in fetched.shares:
            if share.block is not last:
                last, table = share.block, self._table_of(share, fetched, token)
            yield RankRows(
                table=table.slice(share.start, share.stop - share.start),
                restart=share.restart,
                total=share.total,
            )

    def _table_of(self, share: Share, fetched: Fetched, token: str) -> pa.Table:
        """The block of a share; where it is lost, its rows up to the last one that is needed of
        it.
        """
        try:
            return share.block if isinstance(share.block, pa.Table) else api.get(share.block)
        except ObjectLostError:
            rows = max(each.stop for each in fetched.shares if each.block is share.block)
        answer: pa.Table | Rejected = self.client.call("recompute", self.rank, token, share.restart, rows)
        if isinstance(answer, Rejected):
            raise unpack_error(answer.error)
        return answer

    def _log_dropped(self, epoch: int, rows: int) -> None:
        if rows and self.rank == 0:
            logger.info(
                "epoch %d: the last %d rows were dropped, so that all %d ranks get equally many",
                epoch,
                rows,
                self.world_size,
            )
