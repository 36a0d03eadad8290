"""Expressions that make values of their own: random numbers, UUIDs and ids.

Random numbers with a seed and ids depend on the position of the row alone (block and row within
it), never on who computes them or in how many pieces, so that a retry, a resumed pass and any
parallelism give the same. An execution gives those without a seed one of its own (`seeded`).
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from syncline.data.columnar.datatype import DataType
from syncline.data.columnar.expressions.expr import ColumnExpr, EvaluationContext, Expr
from syncline.data.columnar.expressions.operations import ATOM, Value, one_chunk
from syncline.data.columnar.kernels import keys
from syncline.data.io import filesystem as filesystems

logger = logging.getLogger(__name__)

# Downloads wait for the network most of the time.
_THREADS = 16
# Ids keep the block in the upper bits and the row in these lower ones.
ID_ROW_BITS = 33


@dataclass(frozen=True, eq=False, repr=False)
class RandomExpr(Expr):
    """A random float64 in [0, 1) per row."""

    seed: int | None = None
    reseed_after_execution: bool = True

    @property
    def data_type(self) -> DataType:
        return DataType(pa.float64())

    def is_idempotent(self) -> bool:
        return False

    def structurally_equals(self, other: Any) -> bool:
        """Only with a seed: two draws without one differ."""
        return self is other or (self.seed is not None and super().structurally_equals(other))

    def _own(self) -> tuple[Any, ...]:
        return (self.seed, self.reseed_after_execution)

    def _compute(
        self, values: tuple[Value, ...], table: pa.Table, context: EvaluationContext
    ) -> Value:
        if self.seed is None:
            return pa.array(np.random.default_rng().random(table.num_rows))
        execution = context.execution_index if self.reseed_after_execution else 0
        return pa.array(
            uniform([self.seed, execution, context.block_index], context.row_offset, table.num_rows)
        )

    def _text(self) -> tuple[str, int]:
        return "random()" if self.seed is None else f"random(seed={self.seed})", ATOM


@dataclass(frozen=True, eq=False, repr=False)
class UUIDExpr(Expr):
    """A fresh UUID (version 4) per row, as text."""

    seed: int | None = None

    @property
    def data_type(self) -> DataType:
        return DataType(pa.string())

    def is_idempotent(self) -> bool:
        return False

    def structurally_equals(self, other: Any) -> bool:
        """Never with another: each makes UUIDs of its own."""
        return self is other

    def _own(self) -> tuple[Any, ...]:
        return (self.seed,)

    def _compute(
        self, values: tuple[Value, ...], table: pa.Table, context: EvaluationContext
    ) -> Value:
        if self.seed is None:
            octets = np.frombuffer(bytearray(os.urandom(16 * table.num_rows)), np.uint8).reshape(
                -1, 16
            )
        else:
            words = _words(
                [self.seed, context.block_index], 2 * context.row_offset, 2 * table.num_rows
            )
            octets = words.astype("<u8").view(np.uint8).reshape(-1, 16)
        octets[:, 6] = octets[:, 6] & 0x0F | 0x40
        octets[:, 8] = octets[:, 8] & 0x3F | 0x80
        digits = octets.tobytes().hex()
        starts = range(0, len(digits), 32)
        uuids = (
            f"{digits[i : i + 8]}-{digits[i + 8 : i + 12]}-{digits[i + 12 : i + 16]}-{digits[i + 16 : i + 20]}-"
            for i in starts
        )
        return pa.array(
            [head + digits[i + 20 : i + 32] for head, i in zip(uuids, starts, strict=True)],
            pa.string(),
        )

    def _text(self) -> tuple[str, int]:
        return "uuid()", ATOM


@dataclass(frozen=True, eq=False, repr=False)
class MonotonicallyIncreasingIdExpr(Expr):
    """An int64 per row that grows along the dataset and is unique in it, with gaps between
    blocks.
    """

    @property
    def data_type(self) -> DataType:
        return DataType(pa.int64())

    def is_idempotent(self) -> bool:
        return False

    def _compute(
        self, values: tuple[Value, ...], table: pa.Table, context: EvaluationContext
    ) -> Value:
        first = (context.block_index << ID_ROW_BITS) + context.row_offset
        return pa.array(np.arange(first, first + table.num_rows, dtype=np.int64))

    def _text(self) -> tuple[str, int]:
        return "monotonically_increasing_id()", ATOM


@dataclass(frozen=True, eq=False, repr=False)
class DrawBesides(Expr):
    """A random number that counts as computed from all columns.

    The numbers depend on the pieces in which a source is read, and the pieces on the columns that
    are read. Both sides of a split must therefore read the same columns, whatever the program
    selects afterwards; otherwise a row could be on both sides or on none.
    """

    draw: Expr
    others: tuple[Expr, ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.draw, *self.others)

    def _with_children(self, children: tuple[Expr, ...]) -> Expr:
        return DrawBesides(children[0], children[1:])

    def _compute(
        self, values: tuple[Value, ...], table: pa.Table, context: EvaluationContext
    ) -> Value:
        return values[0]

    def _text(self) -> tuple[str, int]:
        return repr(self.draw), ATOM


@dataclass(frozen=True, eq=False, repr=False)
class HashShare(Expr):
    """A number in [0, 1) that depends on the value only: the same in every process, and evenly
    distributed over different values.
    """

    value: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.value,)

    def _with_children(self, children: tuple[Expr, ...]) -> Expr:
        return HashShare(children[0])

    def _compute(
        self, values: tuple[Value, ...], table: pa.Table, context: EvaluationContext
    ) -> Value:
        hashes = keys.row_hashes(pa.table({"value": values[0]}), ["value"])
        return pa.array(hashes / 2.0**64)

    def _text(self) -> tuple[str, int]:
        return f"hash_share({self.value!r})", ATOM


def random(*, seed: int | None = None, reseed_after_execution: bool = True) -> RandomExpr:
    """A random float64 in [0, 1) per row.

    With a `seed` the numbers depend on the position of the row alone; each execution of the dataset
    draws others, unless `reseed_after_execution` is off. Without one they are different every time.
    """
    return RandomExpr(seed, reseed_after_execution)


def uuid() -> UUIDExpr:
    """A fresh UUID (version 4) per row, as text such as "4fa1c0de-...". `uuid().str.replace("-",
    "")` has only digits.
    """
    return UUIDExpr()


def monotonically_increasing_id() -> MonotonicallyIncreasingIdExpr:
    """An int64 per row that is unique in the dataset and grows along it; consecutive within a block
    (of up to 2**33 rows).
    """
    return MonotonicallyIncreasingIdExpr()


def seeded(expr: Expr, seed: Sequence[int]) -> Expr:
    """The same expression whose random numbers and UUIDs are drawn from `seed` where they had none:
    each occurrence draws others.
    """
    return _seeded(expr, list(seed), itertools.count())


def uniform(seed: Sequence[int], first: int, count: int) -> np.ndarray:
    """Numbers `first` to `first + count` of the sequence of random float64 in [0, 1) that belongs
    to the seed: `(count,)`.
    """
    # As numpy's Generator makes them: the upper 53 bits.
    numbers: np.ndarray = (_words(seed, first, count) >> np.uint64(11)) * 2.0**-53
    return numbers


def _words(seed: Sequence[int], first: int, count: int) -> np.ndarray:
    """Numbers `first` to `first + count` of the sequence of random uint64 that belongs to the seed:
    `(count,)`.
    """
    entropy = [part for number in seed for part in (abs(number), int(number < 0))]
    bits = np.random.Philox(key=np.random.SeedSequence(entropy).generate_state(2, np.uint64))
    # Philox counts in steps of four numbers, so any of them can be reached without drawing those
    # before it.
    skipped, within = divmod(first, 4)
    bits.advance(skipped)
    words: np.ndarray = bits.random_raw(within + count)[within:]
    return words


def _seeded(expr: Expr, seed: list[int], numbers: Iterator[int]) -> Expr:
    if isinstance(expr, RandomExpr | UUIDExpr):
        if expr.seed is not None:
            return expr
        drawn = int(
            np.random.SeedSequence(
                [abs(number) for number in [*seed, next(numbers)]]
            ).generate_state(1, np.uint64)[0]
        )
        return (
            RandomExpr(drawn, reseed_after_execution=False)
            if isinstance(expr, RandomExpr)
            else UUIDExpr(drawn)
        )
    children = tuple(_seeded(child, seed, numbers) for child in expr.children)
    unchanged = all(new is old for new, old in zip(children, expr.children, strict=True))
    return expr if unchanged else expr._with_children(children)


# -- downloads


@dataclass(frozen=True, eq=False, repr=False)
class DownloadExpr(Expr):
    """The bytes of the files that an expression names; null where it is null or the file cannot be
    read.
    """

    uri: Expr
    filesystem: Any = None

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.uri,)

    @property
    def uri_column_name(self) -> str | None:
        """The column with the URIs."""
        return self.uri.name

    @property
    def data_type(self) -> DataType:
        return DataType(pa.binary())

    def _own(self) -> tuple[Any, ...]:
        return (self.filesystem,)

    def _with_children(self, children: tuple[Expr, ...]) -> Expr:
        return DownloadExpr(children[0], self.filesystem)

    def _compute(
        self, values: tuple[Value, ...], table: pa.Table, context: EvaluationContext
    ) -> Value:
        uris = values[0]
        if not pa.types.is_string(uris.type) and not pa.types.is_large_string(uris.type):
            raise TypeError(
                f"{self!r} needs a column of paths or URIs, but {self.uri!r} is {uris.type}"
            )
        if not len(uris):
            return pa.array([], pa.binary())
        with ThreadPoolExecutor(min(_THREADS, len(uris)), "syncline-download") as threads:
            contents = list(threads.map(self._fetch, one_chunk(uris).to_pylist()))
        return pa.array(contents, pa.binary())

    def _fetch(self, uri: str | None) -> bytes | None:
        if uri is None:
            return None
        try:
            found, (path,) = filesystems.resolve(uri, self.filesystem)
            with found.open_input_stream(path) as stream:
                content: bytes = stream.read()
        except (OSError, ValueError) as error:
            logger.warning("%r could not be downloaded and is null: %s", uri, error)
            return None
        return content

    def _text(self) -> tuple[str, int]:
        return f"download({self.uri_column_name!r})", ATOM


def download(uri_column_name: str, *, filesystem: Any = None) -> DownloadExpr:
    """The content, as bytes, of the file that each row of a column names by a path or URI.

    Files that cannot be read are null, with a warning in the log. `filesystem` is a pyarrow or
    fsspec one; found from each URI if None.
    """
    return DownloadExpr(ColumnExpr(uri_column_name), filesystem)
