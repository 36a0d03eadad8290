"""Several datasets as one: union, zip, mix, join."""

from __future__ import annotations

import enum
import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from syncline.data.columnar import block as blocks
from syncline.data.columnar.kernels import join as join_kernel
from syncline.data.columnar.kernels.join import JoinType
from syncline.data.methods import checks
from syncline.data.methods.functions import resources_of
from syncline.data.methods.inspecting import InspectingMethods
from syncline.data.plan.nodes import Join, Mix, Node, Union, Zip

if TYPE_CHECKING:
    import pyarrow as pa

    from syncline.data.dataset import Dataset


class MixStoppingCondition(enum.Enum):
    """When a mix of datasets ends."""

    STOP_ON_SHORTEST = "stop_on_shortest"
    """With the first dataset that has no more rows."""
    STOP_ON_LONGEST_DROP = "stop_on_longest_drop"
    """With the last one; those that end before it drop out."""


class CombiningMethods(InspectingMethods):
    """Methods that take other datasets. The result has a copy of this one's context."""

    def union(self, *other: Dataset) -> Dataset:
        """The rows of this dataset, then those of each other one."""
        return self._derive(Union(parts=self._nodes(other)))

    def zip(self, *other: Dataset) -> Dataset:
        """The columns of all datasets side by side, row by row; a name that is there already gets a
        suffix: `_1`, `_2`, …

        Consuming the result raises ValueError where the datasets have different numbers of rows.
        """
        return self._derive(Zip(parts=self._nodes(other)))

    def mix(
        self,
        *other: Dataset,
        weights: list[float] | None = None,
        stopping_condition: MixStoppingCondition = MixStoppingCondition.STOP_ON_LONGEST_DROP,
    ) -> Dataset:
        """Blocks of all datasets in turns, so that at any moment about as many rows came of each as
        its weight says.

        Args:
            *other: The other datasets. weights: A positive number for each dataset, this one first;
            equal ones if None. Only their proportions matter. stopping_condition: When the mix
            ends.
        """
        nodes = self._nodes(other)
        given = [1.0] * len(nodes) if weights is None else list(weights)
        if len(given) != len(nodes):
            raise ValueError(
                f"weights={weights} are {len(given)} for {len(nodes)} datasets: give one for each, this dataset's first"
            )
        if not all(isinstance(weight, int | float) and 0 < weight < math.inf for weight in given):
            raise ValueError(
                f"weights={weights} are not all positive numbers: leave out a dataset that should give no rows"
            )
        if not isinstance(stopping_condition, MixStoppingCondition):
            raise TypeError(
                f"stopping_condition={stopping_condition!r} is of type {type(stopping_condition).__name__}: give a MixStoppingCondition"
            )
        shortest = stopping_condition is MixStoppingCondition.STOP_ON_SHORTEST
        return self._derive(
            Mix(
                parts=nodes,
                weights=tuple(map(float, given)),
                stop_when="shortest" if shortest else "longest",
            )
        )

    def join(
        self,
        ds: Dataset,
        join_type: JoinType,
        num_partitions: int,
        on: tuple[str, ...] = ("id",),
        right_on: tuple[str, ...] | None = None,
        left_suffix: str | None = None,
        right_suffix: str | None = None,
        *,
        partition_size_hint: int | None = None,
        aggregator_ray_remote_args: dict[str, Any] | None = None,
        validate_schemas: bool = False,
    ) -> Dataset:
        """Rows of both datasets whose keys are equal, side by side; null keys match nothing. The
        keys appear once, under the left names.

        What does not fit together (unknown keys, types, columns of one name without suffixes) fails
        at the call where both schemas are known, with `validate_schemas` always.

        Args:
            ds: The right side. join_type: "inner", "left_outer", "right_outer", "full_outer" (rows
            without a partner stay, with nulls), "left_semi",
                "right_semi" (one side's rows that have a partner), "left_anti", "right_anti" (that
                have none).
            num_partitions: Number of blocks that are joined on their own. on: Keys of the left
            side, and of the right one without `right_on`. right_on: Keys of the right side.
            left_suffix: What is added to the left's columns that have the name of one of the
            right's. right_suffix: The same for the right's. partition_size_hint: Ignored.
            aggregator_ray_remote_args: Options of the tasks that join. validate_schemas: Find out
            schemas that are not known, which may execute a part of the plans.
        """
        left_on, right_on = _key_pair(on, right_on)
        num_blocks = checks.count("num_partitions", num_partitions, least=1)
        join_kernel.check_type(join_type)
        if partition_size_hint is not None:
            warnings.warn(
                "partition_size_hint is ignored: partitions need none",
                DeprecationWarning,
                stacklevel=3,
            )
        resources_of(aggregator_ray_remote_args or {})
        parts = self._nodes((ds,))
        schemas = [_schema(side, validate_schemas) for side in (self, ds)]
        checks.keys(schemas[0], left_on, "join on")
        checks.keys(schemas[1], right_on, "join on")
        if all(schema is not None for schema in schemas):
            left, right = map(blocks.empty, schemas)
            join_kernel.join(
                left,
                right,
                join_type,
                left_on,
                right_on,
                left_suffix=left_suffix,
                right_suffix=right_suffix,
            )
        return self._derive(
            Join(
                parts=parts,
                join_type=join_type,
                left_on=left_on,
                right_on=right_on,
                left_suffix=left_suffix,
                right_suffix=right_suffix,
                num_blocks=num_blocks,
            )
        )

    def _nodes(self, others: Sequence[Any]) -> tuple[Node, ...]:
        for other in others:
            if not isinstance(other, CombiningMethods):
                raise TypeError(
                    f"{other!r} is of type {type(other).__name__}, not a dataset: make one of it, for example with from_items"
                )
        return (self._node, *(other._node for other in others))


def _key_pair(on: Any, right_on: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    for name, value in (("on", on), ("right_on", right_on or on)):
        if not isinstance(value, tuple | list) or not value:
            raise ValueError(f"{name}={value!r} is no tuple of keys: write {name}=('id',)")
    left, right = checks.column_names("on", on), checks.column_names("right_on", right_on or on)
    if len(left) != len(right):
        raise ValueError(
            f"on={on} and right_on={right_on} have {len(left)} and {len(right)} keys: give as many on both sides"
        )
    return left, right


def _schema(side: InspectingMethods, fetch: bool) -> pa.Schema | None:
    schema = side.schema(fetch_if_missing=fetch)
    return None if schema is None else schema.base_schema
