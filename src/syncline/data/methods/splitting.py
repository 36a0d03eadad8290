"""One dataset as several: parts of materialized rows, train and test rows, shares for the ranks of
a training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.columnar import expressions
from syncline.data.columnar.expressions import EvaluationContext, Expr, col, lit
from syncline.data.columnar.expressions.kernels import Value
from syncline.data.columnar.expressions.operations import ATOM
from syncline.data.columnar.kernels import group, hashing
from syncline.data.execute import held_blocks as held
from syncline.data.methods import checks
from syncline.data.methods.consuming import ConsumingMethods
from syncline.data.methods.functions import resources_of
from syncline.data.plan.nodes import FilterExpr, Held, HeldBlock, Project, RandomShuffle, Zip
from syncline.data.split import streaming_split

if TYPE_CHECKING:
    from syncline.data.dataset import Dataset, MaterializedDataset
    from syncline.data.iterator import DataIterator

_IS_TEST = "__is_test"


class SplittingMethods(ConsumingMethods):
    """Methods that return several datasets. But for the streaming ones they compute all rows
    first.
    """

    def split(
        self, n: int, *, equal: bool = False, locality_hints: list[Any] | None = None
    ) -> list[MaterializedDataset]:
        """`n` parts, in order: of about as many blocks each (rows, where there are fewer blocks),
        or with `equal` of as many rows each.

        Args:
            n: Number of parts.
            equal: Drop the rows that are left over.
            locality_hints: Accepted, one for each part; where rows lie makes no difference here.
        """
        checks.count("n", n, least=1)
        if locality_hints is not None and len(locality_hints) != n:
            raise ValueError(
                f"{len(locality_hints)} locality_hints do not fit n={n} parts: give one for each, or None"
            )
        found = self._blocks()
        rows = sum(block.num_rows for block in found)
        if equal:
            parts = held.cut(found, [rows // n * number for number in range(1, n + 1)])[:n]
        elif len(found) < n:
            parts = held.cut(found, [rows * number // n for number in range(1, n)])
        else:
            ends = np.cumsum(
                [len(found) // n + (number < len(found) % n) for number in range(n)]
            ).tolist()
            parts = [found[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        return [self._hold(part) for part in parts]

    def split_at_indices(self, indices: list[int]) -> list[MaterializedDataset]:
        """The rows before the first index, those from there up to the second, …, and the rest: one
        part more than there are indices.
        """
        if not isinstance(indices, list | tuple) or not indices:
            raise ValueError(
                f"indices={indices!r} are no list of rows to split at: give at least one"
            )
        for index in indices:
            checks.count("indices", index, least=0)
        if sorted(indices) != list(indices):
            raise ValueError(f"indices={indices} are not in order: sort them")
        return [self._hold(part) for part in held.cut(self._blocks(), indices)]

    def split_proportionately(self, proportions: list[float]) -> list[MaterializedDataset]:
        """Parts with these shares of the rows, and one with the rest.

        Args:
            proportions: Positive numbers whose sum is below 1.
        """
        if not proportions or not all(share > 0 for share in proportions) or sum(proportions) >= 1:
            raise ValueError(
                f"proportions={proportions} leave no rest: give positive numbers whose sum is below 1"
            )
        found = self._blocks()
        rows = sum(block.num_rows for block in found)
        return [
            self._hold(part)
            for part in held.cut(
                found, _nonempty([int(rows * part) for part in np.cumsum(proportions)], proportions)
            )
        ]

    def train_test_split(
        self,
        test_size: int | float,
        *,
        shuffle: bool = False,
        seed: int | None = None,
        stratify: str | None = None,
    ) -> tuple[MaterializedDataset, MaterializedDataset]:
        """Two parts: for training, and the last rows for tests.

        Args:
            test_size: Rows of the second one, as an int, or their share as a float between 0 and 1.
            shuffle: Put the rows in random order first. seed: Of that order. stratify: A column: of
            each of its values the same share goes to the tests; both parts keep the rows' order.
        """
        if isinstance(test_size, bool) or not isinstance(test_size, int | float):
            raise TypeError(
                f"test_size={test_size!r} is of type {type(test_size).__name__}: give a number of rows, or a share as a float"
            )
        if shuffle and stratify is not None:
            raise ValueError(
                "shuffle=True and stratify exclude each other: call random_shuffle() before, or leave one of them out"
            )
        if isinstance(test_size, float) and not 0 < test_size < 1:
            raise ValueError(
                f"test_size={test_size} is no share: give a float between 0 and 1, or an int for a number of rows"
            )
        source = (
            self._derive(RandomShuffle(input=self._node, seed=checks.seed(seed)))
            if shuffle
            else self
        )
        found = source._blocks()
        rows = sum(block.num_rows for block in found)
        if isinstance(test_size, int) and not 0 < test_size < rows:
            raise ValueError(
                f"test_size={test_size} of {rows} rows leaves none on one side: give 1 to {rows - 1}"
            )
        if stratify is not None:
            return self._stratified(
                found, stratify, test_size if isinstance(test_size, float) else test_size / rows
            )
        if isinstance(test_size, float):
            (index,) = _nonempty([int(rows * (1 - test_size))], [1 - test_size])
        else:
            index = rows - test_size
        train, test = held.cut(found, [index])
        return self._hold(train), self._hold(test)

    def streaming_train_test_split(
        self,
        test_size: float,
        *,
        split_type: Literal["hash", "random"] = "random",
        hash_column: str | None = None,
        seed: int | None = None,
        **ray_remote_kwargs: Any,
    ) -> tuple[Dataset, Dataset]:
        """Two lazy datasets, for training and for tests, whose rows are told apart as they stream
        by.

        Args:
            test_size: The share of rows for tests, between 0 and 1; it is met on average.
            split_type: "random" draws for each row, the same in every execution on as many CPUs,
            which reads all columns; "hash" goes by
                the value of a column, so that a row is on the same side for ever.
            hash_column: That column.
            seed: Of the draws.
            **ray_remote_kwargs: Accepted; no workers are needed.
        """
        resources_of(ray_remote_kwargs)
        if (
            isinstance(test_size, bool)
            or not isinstance(test_size, int | float)
            or not 0 < test_size < 1
        ):
            raise ValueError(
                f"test_size={test_size!r} is no share of the rows: give a float between 0 and 1"
            )
        if split_type not in ("hash", "random"):
            raise ValueError(f"split_type={split_type!r} is not known: choose 'hash' or 'random'")
        share: Expr
        if split_type == "hash":
            if hash_column is None or seed is not None:
                raise ValueError(
                    f"split_type='hash' needs hash_column and no seed, but hash_column={hash_column!r} and seed={seed}"
                )
            checks.known_columns(self._known_schema(), [hash_column])
            share = HashShare(col(hash_column))
        elif hash_column is not None:
            raise ValueError(
                f"hash_column={hash_column!r} goes with split_type='hash': set it, or leave hash_column out"
            )
        else:
            schema = self._known_schema()
            draw = expressions.random(
                seed=0 if seed is None else seed, reseed_after_execution=False
            )
            share = DrawBesides(draw, tuple(map(col, () if schema is None else schema.names)))
        in_train = share < lit(1 - test_size)
        return self._derive(FilterExpr(input=self._node, predicate=in_train)), self._derive(
            FilterExpr(input=self._node, predicate=~in_train)
        )

    def streaming_split(
        self, n: int, *, equal: bool | str = False, locality_hints: list[str] | None = None
    ) -> list[DataIterator]:
        """`n` iterators, for as many ranks that go through the rows together: each row comes to one
        of them, in every epoch.

        Args:
            n: Number of ranks. All of them have to take part in every epoch. equal: True or "drop"
            gives every rank as many rows, and drops those that are left over; "pad" repeats some
            instead. locality_hints: Accepted, one for each rank.
        """
        return streaming_split(
            cast("Dataset", self),
            n,
            equal=equal,
            locality_hints=locality_hints,
            keep=self._of_blocks,
        )

    def _stratified(
        self, found: Sequence[HeldBlock], column: str, share: float
    ) -> tuple[MaterializedDataset, MaterializedDataset]:
        source = self._derive(Held(blocks=tuple(found)))
        checks.known_columns(source._known_schema(), [column])
        strata = blocks.concat(list(source.select_columns(column)._tables()))
        marks = pa.table({_IS_TEST: _last_of_each(strata, column, share)})
        marked = Zip(parts=(source._node, Held(blocks=(held.of_table(marks),))))
        train, test = (
            self._derive(
                Project(
                    input=FilterExpr(input=marked, predicate=side),
                    expressions=(expressions.star(),),
                    dropped=(_IS_TEST,),
                )
            )
            for side in (~col(_IS_TEST), col(_IS_TEST))
        )
        return train.materialize(), test.materialize()


@dataclass(frozen=True, eq=False, repr=False)
class DrawBesides(Expr):
    """A random number that counts as computed from all columns.

    What is drawn for a row depends on the pieces in which a source is read, and those on the
    columns that are read: so both sides of a split have to read the same ones, whichever of them
    the program selects afterwards, or a row would be on both sides or on none.
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
    """A number in [0, 1) that depends on the value alone: the same in every process, evenly spread
    over different values.
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
        hashes = hashing.row_hashes(pa.table({"value": values[0]}), ["value"])
        return pa.array(hashes / 2.0**64)

    def _text(self) -> tuple[str, int]:
        return f"hash_share({self.value!r})", ATOM


def _nonempty(ends: list[int], proportions: Sequence[float]) -> list[int]:
    """Ends of parts, moved back where a part would otherwise have no rows. ValueError where there
    are too few rows.
    """
    moved = 0
    for number in reversed(range(len(ends) - 1)):
        ends[number] -= moved
        if ends[number] == ends[number + 1]:
            moved += 1
            ends[number] -= 1
    if any(end <= 0 for end in ends):
        raise ValueError(
            f"there are too few rows for parts with the shares {list(proportions)}: one would be empty"
        )
    return ends


def _last_of_each(table: pa.Table, column: str, share: float) -> np.ndarray:
    """bool `(rows,)`: of the rows with one value in the column, the last ones, `share` of them,
    rounded down.
    """
    found = group.groups(table, column)
    sizes = np.diff(found.offsets)
    first_marked = found.offsets[:-1] + sizes - (sizes * share).astype(np.int64)
    marks = np.empty(table.num_rows, bool)
    marks[found.order] = np.arange(table.num_rows) >= np.repeat(first_marked, sizes)
    return marks
