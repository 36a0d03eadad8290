"""`Dataset.streaming_split`: one batch source per rank of a shared dataset.

All ranks reach one coordinator, an actor, or in local mode an object of this process. Each source
fetches its rank's rows in advance.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias
from weakref import WeakValueDictionary

import pyarrow as pa

from syncline.core import api
from syncline.core.error_frames import unpack_error
from syncline.core.refs import ObjectRef
from syncline.data.columnar import block as blocks
from syncline.data.columnar.schemas import Schema
from syncline.data.context import DataContext
from syncline.data.execute.block_store import held_block_of
from syncline.data.execute.worker_handles import same_node_options
from syncline.data.iterate.batch_source import EMPTY_TABLE, BatchSource, Materialized, SourceDataset
from syncline.data.iterate.batching import BatchOptions, Pass, RankRows
from syncline.data.iterate.cursor import Cursor
from syncline.data.iterate.sharding import Equal, equal_mode
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
from syncline.data.plan import checks
from syncline.data.plan.nodes import HeldBlock
from syncline.data.plan.signature import signature
from syncline.exceptions import ActorDiedError, ObjectLostError
from syncline.records import dataclass

logger = logging.getLogger("syncline")

# Concurrent calls per rank: one that waits for rows, one of an earlier pass, `leave`, `heartbeat`.
_CALLS_PER_RANK = 4
HEARTBEAT_S = 10.0
"""Seconds between two heartbeats of a rank on another machine."""

MakeDataset = Callable[[tuple[HeldBlock, ...], DataContext], Materialized]
"""Creates a dataset from blocks."""


def split_sources(
    dataset: SourceDataset,
    n: int,
    *,
    equal: bool | str = False,
    locality_hints: Sequence[object] | None = None,
    make_dataset: MakeDataset,
    timeouts: SplitTimeouts | None = None,
) -> list[SplitSource]:
    """Return the sources of `Dataset.streaming_split`, for `n` concurrent consumers in any
    processes. The dataset is read once per pass for all of them together.

    A loop begins when all consumers have begun theirs. It raises a `SplitError` if one of them
    cannot join or has died. If the last rows are too few for a batch of every consumer,
    `equal=False` gives them to the first consumers.
    """
    n = checks.count("n", n, least=1)
    if locality_hints is not None and len(locality_hints) != n:
        raise ValueError(
            f"locality_hints has {len(locality_hints)} entries for {n} consumers. Use one each."
        )
    mode, plan = equal_mode(equal), signature(dataset._node)
    client = _coordinator_client(dataset, n, mode, timeouts or SplitTimeouts())
    return [
        SplitSource(
            client=client,
            rank=rank,
            world_size=n,
            signature=plan,
            data_context=dataset.context,
            make_dataset=make_dataset,
        )
        for rank in range(n)
    ]


def _coordinator_client(
    dataset: SourceDataset, n: int, equal: Equal, timeouts: SplitTimeouts
) -> CoordinatorClient:
    if api.ensure_engine().is_local_mode:
        return LocalClient(SplitCoordinator(dataset, n, equal, timeouts, in_process=True))
    options = {"num_cpus": 0, "max_concurrency": _CALLS_PER_RANK * n + 2, **same_node_options()}
    actor = api.remote(**options)(SplitCoordinator)
    return ActorClient(actor.remote(dataset, n, equal, timeouts))


# -- clients of the coordinator

Reply: TypeAlias = Any
"""Result of the coordinator's method."""


class CoordinatorClient(Protocol):
    """Calls methods of a coordinator. Picklable; the coordinator lives as long as its clients."""

    def submit(self, method: str, *args: object) -> Callable[[], Reply]:
        """Start a call and return a function that waits for its result once."""
        ...

    def call(self, method: str, *args: object) -> Reply:
        """Call a method and wait for its result."""
        ...

    def tell(self, method: str, *args: object) -> None:
        """Call a method without waiting."""
        ...


class ActorClient:
    """Client of a coordinator that is an actor."""

    def __init__(self, actor: api.ActorHandle) -> None:
        self._actor = actor

    def submit(self, method: str, *args: object) -> Callable[[], Reply]:
        ref = getattr(self._actor, method).remote(*args)

        def wait() -> Reply:
            try:
                return api.get(ref)
            except ActorDiedError as error:
                raise _coordinator_died(error) from error

        return wait

    def call(self, method: str, *args: object) -> Reply:
        return self.submit(method, *args)()

    def tell(self, method: str, *args: object) -> None:
        # A call would start the engine again if a loop is dropped after its end.
        if api.is_initialized():
            self.submit(method, *args)


class LocalClient:
    """Client of a coordinator in this process. All copies share the coordinator."""

    _coordinators: WeakValueDictionary[str, SplitCoordinator] = WeakValueDictionary()

    def __init__(self, coordinator: SplitCoordinator) -> None:
        self._key = secrets.token_hex(8)
        self._coordinator = coordinator
        self._coordinators[self._key] = coordinator

    def submit(self, method: str, *args: object) -> Callable[[], Reply]:
        return lambda: self.call(method, *args)

    def call(self, method: str, *args: object) -> Reply:
        return getattr(self._coordinator, method)(*args)

    def tell(self, method: str, *args: object) -> None:
        self.call(method, *args)

    def __reduce__(self) -> tuple[Callable[[str], LocalClient], tuple[str]]:
        return (_local_client, (self._key,))


def _coordinator_died(error: ActorDiedError) -> BaseException:
    if error.exit_cause is None or error.pid is None:  # the actor did not start
        return error
    return CoordinatorDiedError(
        f"The process that reads the dataset for all ranks (pid {error.pid}) {error.exit_cause}, "
        "which ends the pass for all of them. Split the dataset again and resume all ranks from "
        "their last checkpoint, as a trainer with FailureConfig(max_failures=1) does."
    )


def _local_client(key: str) -> LocalClient:
    client = LocalClient.__new__(LocalClient)
    client._key, client._coordinator = key, LocalClient._coordinators[key]
    return client


# -- sources

Tables: TypeAlias = Mapping[ObjectRef[pa.Table], pa.Table]


def _tables_of(fetched: Fetched) -> Tables:
    """Return the referenced blocks of a reply with one call; none of them if one is lost."""
    refs = list({each.block: None for each in fetched.shares if isinstance(each.block, ObjectRef)})
    try:
        return dict(zip(refs, api.get(refs), strict=True))
    except ObjectLostError:
        return {}


@dataclass(frozen=True, kw_only=True, eq=False)
class SplitSource(BatchSource):
    """One rank's part of a dataset. All ranks of a split begin each pass together."""

    client: CoordinatorClient
    rank: int
    world_size: int
    signature: str
    """Signature of the plan."""
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

        return Pass(cursor=cursor, rows=self._rows(token, cursor, joined.first), cancel=cancel)

    def schema(self) -> Schema | None:
        schema: Schema | None = self.client.call("schema")
        return schema

    def stats(self) -> str:
        text: str = self.client.call("stats")
        return text

    def materialize(self) -> Materialized:
        current = self.begin(BatchOptions(batch_size=None), ())
        try:
            tables = [blocks.compact(each.table) for each in current.rows if each.table.num_rows]
        finally:
            current.cancel()
        held = tuple(held_block_of(table, in_store=True) for table in tables)
        return self.make_dataset(held, self.context)

    def retire(self) -> None:
        self.client.tell("retire", self.rank)

    def __repr__(self) -> str:
        return f"rank {self.rank} of {self.world_size}"

    def _join(self, join: Join) -> Joined:
        reply: Joined | Rejected | None = None
        try:
            while reply is None:
                reply = self.client.call("join", join)
        except BaseException:  # for example Ctrl-C: the other ranks must not wait for this one
            self.client.tell("leave", self.rank, join.token)
            raise
        if isinstance(reply, Rejected):
            self.client.tell("leave", self.rank, join.token)
            raise unpack_error(reply.error)
        return reply

    def _heartbeat(self, token: str, stop: threading.Event) -> None:
        while not stop.wait(HEARTBEAT_S):
            self.client.tell("heartbeat", self.rank, token)

    def _rows(self, token: str, cursor: Cursor, fetched: Fetched) -> Iterator[RankRows]:
        restart = cursor.restart
        while not fetched.ended:
            wait = self.client.submit("fetch", self.rank, token)
            for rows in self._fetched_rows(fetched, token):
                restart = rows.restart
                yield rows
            reply: Fetched | Rejected = wait()
            if isinstance(reply, Rejected):
                raise unpack_error(reply.error)
            fetched = reply
        self._log_dropped(cursor.epoch, fetched.dropped_rows)
        yield RankRows(table=EMPTY_TABLE, restart=restart, total=fetched.total)

    def _fetched_rows(self, fetched: Fetched, token: str) -> Iterator[RankRows]:
        tables = _tables_of(fetched)
        last, table = None, EMPTY_TABLE
        for share in fetched.shares:
            if share.block is not last:
                last, table = share.block, self._table_of(share, fetched, tables, token)
            yield RankRows(
                table=table.slice(share.start, share.stop - share.start),
                restart=share.restart,
                total=share.total,
            )

    def _table_of(self, share: Share, fetched: Fetched, tables: Tables, token: str) -> pa.Table:
        """Return the block of a share; if it is lost, recompute its rows as far as needed."""
        if isinstance(share.block, pa.Table):
            return share.block
        try:
            return tables[share.block] if tables else api.get(share.block)
        except ObjectLostError:
            rows = max(each.stop for each in fetched.shares if each.block is share.block)
        reply: pa.Table | Rejected = self.client.call(
            "recompute", self.rank, token, share.restart, rows
        )
        if isinstance(reply, Rejected):
            raise unpack_error(reply.error)
        return reply

    def _log_dropped(self, epoch: int, rows: int) -> None:
        if rows and self.rank == 0:
            logger.info(
                "Epoch %d: the last %d rows were dropped so that all %d ranks get equally many.",
                epoch,
                rows,
                self.world_size,
            )
