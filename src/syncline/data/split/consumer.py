"""The consumer's side of a split: one rank's feed, which fetches rows from the coordinator ahead of
need.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from syncline.core import api
from syncline.core.error_frames import unpack_error
from syncline.data.columnar import block as blocks
from syncline.data.context import DataContext
from syncline.data.feeds import NO_ROWS, Feed
from syncline.data.iterate.batching import BatchOptions, Pass, Piece
from syncline.data.iterate.cursor import Cursor
from syncline.data.plan.nodes import HeldBlock
from syncline.data.split.link import Link
from syncline.data.split.liveness import this_process
from syncline.data.split.messages import Fetched, Join, Joined, Refused, Share
from syncline.exceptions import ObjectLostError

if TYPE_CHECKING:
    from syncline.data.dataset import MaterializedDataset

logger = logging.getLogger("syncline")

BEAT_S = 10.0
"""How often a rank that the coordinator cannot see says that it lives."""

Keep = Callable[[tuple[HeldBlock, ...], DataContext], "MaterializedDataset"]
"""Makes a dataset of blocks."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SplitFeed(Feed):
    """One rank's share of a dataset. All ranks of a split begin each pass together."""

    link: Link
    rank: int
    world_size: int
    signature: str
    """Of the plan."""
    data_context: DataContext
    keep: Keep

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
        beats = threading.Event()
        if joined.needs_beats:
            threading.Thread(
                target=self._beat, args=(token, beats), name="syncline-beat", daemon=True
            ).start()
        beginning = joined.beginning
        cursor = beginning.cursor(
            plan=self.plan, rank=self.rank, windows=options.windows(beginning.seed)
        )

        def cancel() -> None:
            beats.set()
            self.link.tell("leave", self.rank, token)

        return Pass(cursor=cursor, pieces=self._pieces(token, cursor), cancel=cancel)

    def schema(self) -> Any:
        return self.link.call("schema")

    def stats(self) -> str:
        text: str = self.link.call("stats")
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
        return self.keep(tuple(held), self.context)

    def resign(self) -> None:
        self.link.tell("resign", self.rank)

    def __repr__(self) -> str:
        return f"rank {self.rank} of {self.world_size}"

    def _join(self, join: Join) -> Joined:
        answer: Joined | Refused | None = None
        try:
            while answer is None:
                answer = self.link.call("join", join)
        except BaseException:  # such as Ctrl-C: the others must not take this rank for waiting
            self.link.tell("leave", self.rank, join.token)
            raise
        if isinstance(answer, Refused):
            self.link.tell("leave", self.rank, join.token)
            raise unpack_error(answer.error)
        return answer

    def _beat(self, token: str, over: threading.Event) -> None:
        while not over.wait(BEAT_S):
            self.link.tell("beat", self.rank, token)

    def _pieces(self, token: str, cursor: Cursor) -> Iterator[Piece]:
        restart = cursor.restart
        wait = self.link.submit("fetch", self.rank, token)
        while True:
            answer: Fetched | Refused = wait()
            if isinstance(answer, Refused):
                raise unpack_error(answer.error)
            if not answer.ended:
                wait = self.link.submit("fetch", self.rank, token)
            for piece in self._pieces_of(answer, token):
                restart = piece.restart
                yield piece
            if answer.ended:
                self._log_dropped(cursor.epoch, answer.dropped_rows)
                yield Piece(table=NO_ROWS, restart=restart, total=answer.total)
                return

    def _pieces_of(self, fetched: Fetched, token: str) -> Iterator[Piece]:
        last, table = None, NO_ROWS
        for share in fetched.shares:
            if share.block is not last:
                last, table = share.block, self._table_of(share, fetched, token)
            yield Piece(
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
        answer: pa.Table | Refused = self.link.call("again", self.rank, token, share.restart, rows)
        if isinstance(answer, Refused):
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
