"""Expressions that create values: random numbers, UUIDs, ids, and downloaded files.

Ids, and random numbers with a seed, depend only on the position of the row (block and row within
it), so that retries, resumed passes and any parallelism give the same values. An execution assigns
a seed to expressions without one (`seeded`).
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from syncline.data.columnar.columns import is_text
from syncline.data.columnar.datatype import DataType
from syncline.data.columnar.expressions.expr import ColumnExpr, EvaluationContext, Expr
from syncline.data.columnar.expressions.operations import ATOM, Value, Values, one_chunk
from syncline.data.io import filesystem as filesystems
from syncline.records import dataclass

logger = logging.getLogger(__name__)

# Downloads wait for the network most of the time.
_THREADS = 16
# Ids store the block in the upper bits and the row in these lower bits.
ID_ROW_BITS = 33


@dataclass(frozen=True, eq=False, repr=False)
class RandomExpr(Expr):
    """A random float64 in [0, 1) per row."""

    seed: int | None = None
    reseed_after_execution: bool = True

    data_type = DataType(pa.float64())

    def is_idempotent(self) -> bool:
        return False

    def structurally_equals(self, other: object) -> bool:
        """Return True for equal seeds only: two draws without a seed differ."""
        return self is other or (self.seed is not None and super().structurally_equals(other))

    def _compute(self, values: Values, table: pa.Table, context: EvaluationContext) -> Value:
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
    """A new UUID (version 4) per row, as text."""

    seed: int | None = None

    data_type = DataType(pa.string())

    def is_idempotent(self) -> bool:
        return False

    def structurally_equals(self, other: object) -> bool:
        """Return False for any other expression: each creates its own UUIDs."""
        return self is other

    def _compute(self, values: Values, table: pa.Table, context: EvaluationContext) -> Value:
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
            f"{digits[i : i + 8]}-{digits[i + 8 : i + 12]}-{digits[i + 12 : i + 16]}-"
            f"{digits[i + 16 : i + 20]}-"
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
    """An int64 per row that increases along the dataset and is unique in it, with gaps between
    blocks.
    """

    data_type = DataType(pa.int64())

    def is_idempotent(self) -> bool:
        return False

    def _compute(self, values: Values, table: pa.Table, context: EvaluationContext) -> Value:
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

    def _compute(self, values: Values, table: pa.Table, context: EvaluationContext) -> Value:
        return values[0]

    def _text(self) -> tuple[str, int]:
        return repr(self.draw), ATOM


@dataclass(frozen=True, eq=False, repr=False)
class HashShare(Expr):
    """A number in [0, 1) that depends on the text of the value only: the same in every process and
    in Ray Data, and evenly distributed over different values.
    """

    value: Expr

    def _compute(self, values: Values, table: pa.Table, context: EvaluationContext) -> Value:
        column = one_chunk(values[0])
        texts = (str(value).encode() for value in column.to_numpy(zero_copy_only=False))
        digests = b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in texts)
        return pa.array(np.frombuffer(digests, ">u8") / 2.0**64)

    def _text(self) -> tuple[str, int]:
        return f"hash_share({self.value!r})", ATOM


def random(*, seed: int | None = None, reseed_after_execution: bool = True) -> RandomExpr:
    """Return a random float64 in [0, 1) per row.

    With a `seed` the numbers depend only on the position of the row; each execution of the dataset
    draws other numbers, unless `reseed_after_execution` is off. Without a seed they differ in every
    execution.
    """
    return RandomExpr(seed, reseed_after_execution)


def uuid() -> UUIDExpr:
    """Return a new UUID (version 4) per row, as text such as "4fa1c0de-...".
    `uuid().str.replace("-", "")` has only digits.
    """
    return UUIDExpr()


def monotonically_increasing_id() -> MonotonicallyIncreasingIdExpr:
    """Return an int64 per row that is unique in the dataset and increases along it; consecutive
    within a block (of up to 2**33 rows).
    """
    return MonotonicallyIncreasingIdExpr()


def seeded(expr: Expr, seed: Sequence[int]) -> Expr:
    """Return the expression with seeds derived from `seed` for random numbers and UUIDs without
    one; each occurrence gets another seed.
    """
    return _seeded(expr, list(seed), itertools.count())


def uniform(seed: Sequence[int], first: int, count: int) -> np.ndarray:
    """Return the numbers `first` to `first + count`, `(count,)`, of the seed's sequence of random
    float64 in [0, 1).
    """
    # numpy's Generator uses the upper 53 bits too.
    numbers: np.ndarray = (_words(seed, first, count) >> np.uint64(11)) * 2.0**-53
    return numbers


def _words(seed: Sequence[int], first: int, count: int) -> np.ndarray:
    """Return the numbers `first` to `first + count`, `(count,)`, of the seed's sequence of random
    uint64.
    """
    entropy = [part for number in seed for part in (abs(number), int(number < 0))]
    bits = np.random.Philox(key=np.random.SeedSequence(entropy).generate_state(2, np.uint64))
    # Philox advances in steps of four numbers, so it can skip to any number.
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
    """Bytes of the files that an expression names; null if the name is null or the file cannot be
    read.
    """

    uri: Expr
    filesystem: object = None

    @property
    def uri_column_name(self) -> str | None:
        """Name of the column with the URIs."""
        return self.uri.name

    data_type = DataType(pa.binary())

    def _compute(self, values: Values, table: pa.Table, context: EvaluationContext) -> Value:
        uris = values[0]
        if not is_text(uris.type):
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
            logger.warning("Cannot download %r, its value is null: %s", uri, error)
            return None
        return content

    def _text(self) -> tuple[str, int]:
        return f"download({self.uri_column_name!r})", ATOM


def download(uri_column_name: str, *, filesystem: object = None) -> DownloadExpr:
    """Return the content, as bytes, of the file that each row of a column names by a path or URI.

    Files that cannot be read become null, with a warning in the log. `filesystem` is a pyarrow or
    fsspec filesystem; None finds it from each URI.
    """
    return DownloadExpr(ColumnExpr(uri_column_name), filesystem)
