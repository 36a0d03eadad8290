"""Functions that build plan nodes from the arguments of `Dataset` and `GroupedData` methods.

Every function checks its arguments at the call, as far as the input's schema is known then, and
raises TypeError, ValueError or UnknownColumnError. In order: functions on rows and batches,
columns, rows and blocks, groups, several inputs, writes.
"""

from __future__ import annotations

import enum
import functools
import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.columnar import expressions
from syncline.data.columnar.aggregate import AggregateFn, phases
from syncline.data.columnar.block import BatchFormat
from syncline.data.columnar.expressions import Expr, UnnestExpr, col, star
from syncline.data.columnar.kernels import join as join_kernel
from syncline.data.columnar.kernels.join import JoinType
from syncline.data.execute.cache import CacheSlot
from syncline.data.io import filesystem as filesystems
from syncline.data.io.sinks.datasink import Datasink
from syncline.data.plan import checks, properties, seeds
from syncline.data.plan.function_options import (
    NotAFunctionError,
    Options,
    checked_resources,
    project_strategy,
    resources_of,
    user_function,
)
from syncline.data.plan.nodes import (
    Aggregate,
    Cache,
    FilterExpr,
    FilterRows,
    HashPartition,
    Join,
    MapBatches,
    MapGroups,
    Mix,
    Node,
    Project,
    RandomShuffle,
    Repartition,
    Seed,
    Sort,
    Write,
)
from syncline.storage import filesystem as storage

Keys = str | list[str] | None


class Input(Protocol):
    """The input of a new node."""

    @property
    def node(self) -> Node:
        """The plan of the input."""

    def known_schema(self) -> pa.Schema | None:
        """Return the schema as far as it is known without an execution."""

    def schema(self) -> pa.Schema | None:
        """Return the schema; compute the first row if the plan does not tell."""


class MixStoppingCondition(enum.Enum):
    """When a mix of datasets ends."""

    STOP_ON_SHORTEST = "stop_on_shortest"
    """When the first dataset has no more rows."""
    STOP_ON_LONGEST_DROP = "stop_on_longest_drop"
    """When no dataset has more rows; datasets that end earlier drop out."""


# -- functions on rows and batches


def map_batches(
    source: Input,
    function: Callable[..., object],
    options: Options,
    *,
    batch_size: int | None | Literal["auto"],
    batch_format: BatchFormat,
    zero_copy: bool,
    keeps_row_count: bool,
) -> MapBatches:
    """Build `Dataset.map_batches`."""
    blocks.check_batch_format(batch_format)
    num_gpus = options.get("num_gpus")
    if batch_size is not None and batch_size != "auto":
        batch_size = checks.count("batch_size", batch_size, least=1)
    elif num_gpus:
        raise ValueError(
            f"num_gpus={num_gpus} needs batch_size to be an int, not {batch_size!r}: "
            "a block may not fit into a GPU's memory"
        )
    return MapBatches(
        input=source.node,
        function=user_function(function, options),
        batch_size=batch_size,
        batch_format=batch_format,
        zero_copy=zero_copy,
        keeps_row_count=keeps_row_count,
    )


def filter_rows(
    source: Input,
    function: Callable[..., bool] | Expr | None,
    expr: str | Expr | None,
    options: Options,
) -> FilterRows | FilterExpr:
    """Build `Dataset.filter`."""
    if isinstance(function, Expr) and expr is None:
        function, expr = None, function
    if (function is None) == (expr is None):
        raise ValueError("filter takes a function or an expression: pass either `fn` or `expr`")
    if expr is None:
        return FilterRows(input=source.node, function=user_function(function, options))
    unused = [
        name for name, value in options.items() if name.startswith("fn_") and value is not None
    ]
    if unused:
        raise ValueError(f"{', '.join(unused)} go with `fn`, not with `expr`: leave them out")
    if isinstance(expr, str):
        # The warning names the line of the program: past `Dataset.filter` and its two wrappers.
        warnings.warn(
            f"{expr!r} as text is deprecated: write an expression, such as col('age') > 18",
            DeprecationWarning,
            stacklevel=5,
        )
        expr = expressions.parse(expr)
    return FilterExpr(input=source.node, predicate=checks.predicate(source.known_schema(), expr))


# -- columns


def select_columns(source: Input, cols: str | list[str], options: Options) -> Project:
    """Build `Dataset.select_columns`."""
    names = checks.column_names("cols", cols)
    checks.projected_columns(source.known_schema(), names)
    if not names:  # a projection on no expressions would keep all columns
        schema = source.schema()
        return _project(
            source,
            options,
            expressions=(star(),),
            dropped=() if schema is None else tuple(schema.names),
        )
    return _project(source, options, expressions=tuple(map(col, names)))


def drop_columns(source: Input, cols: str | list[str], options: Options) -> Project:
    """Build `Dataset.drop_columns`."""
    names = checks.column_names("cols", cols)
    checks.projected_columns(source.known_schema(), names)
    return _project(source, options, expressions=(star(),), dropped=names)


def rename_columns(
    source: Input, names: list[str] | Mapping[str, str], options: Options
) -> Project:
    """Build `Dataset.rename_columns`."""
    if not isinstance(names, dict | list):
        raise TypeError(
            f"names={names!r} is of type {type(names).__name__}: "
            "pass a dict from old to new names, or a list of all names"
        )
    if not names:
        raise ValueError(f"names={names!r} renames no column: pass at least one name")
    new = checks.column_names("names", list(names.values()) if isinstance(names, dict) else names)
    if isinstance(names, list):
        schema = source.schema()
        old: tuple[str, ...] = () if schema is None else tuple(schema.names)
        if len(old) != len(new):
            raise ValueError(
                f"{len(new)} names do not fit {len(old)} columns ({', '.join(old)}): "
                "pass one name for each column, or a dict"
            )
        return _project(source, options, renamed=dict(zip(old, new, strict=True)))
    old = checks.column_names("names", list(names))
    known = source.known_schema()
    checks.projected_columns(known, old)
    taken = [name for name in new if known is not None and name in known.names and name not in old]
    if taken:
        raise ValueError(
            f"names={names} gives the name {taken[0]!r} to a second column: "
            "rename or drop the column that has this name"
        )
    return _project(source, options, renamed=dict(zip(old, new, strict=True)))


def with_columns(
    source: Input, exprs: Sequence[Mapping[str, Expr] | UnnestExpr | None], options: Options
) -> Node:
    """Build `Dataset.with_columns`."""
    computed = [each for argument in exprs if argument is not None for each in _named(argument)]
    if not computed:
        return source.node
    checks.expressions(source.known_schema(), [star(), *computed])
    return _project(source, options, expressions=(star(), *computed))


def add_column(
    source: Input,
    name: str,
    function: Callable[..., object],
    batch_format: Literal["pandas", "numpy", "pyarrow"],
    options: Options,
) -> MapBatches:
    """Build `Dataset.add_column`."""
    if batch_format not in ("pandas", "numpy", "pyarrow"):
        raise ValueError(
            f"batch_format={batch_format!r} is not known: choose 'pandas', 'numpy' or 'pyarrow'"
        )
    if not callable(function):
        raise NotAFunctionError(
            f"fn={function!r} is of type {type(function).__name__}: "
            "pass a function that takes a batch and returns a column"
        )
    return map_batches(
        source,
        functools.partial(blocks.add_column, checks.column_name("col", name), function),
        options,
        batch_size=None,
        batch_format=batch_format,
        zero_copy=True,
        keeps_row_count=True,
    )


def _project(source: Input, options: Options, **columns: Any) -> Project:
    return Project(
        input=source.node,
        resources=resources_of(options),
        compute=project_strategy(options.get("compute"), options.get("concurrency")),
        **columns,
    )


def _named(argument: Mapping[str, Expr] | UnnestExpr) -> list[Expr]:
    """Return the expressions of one argument of `with_columns` under their names."""
    if isinstance(argument, UnnestExpr):
        return [argument]
    if not isinstance(argument, Mapping):
        raise TypeError(
            f"with_columns takes a dict of expressions or unnest(...), "
            f"not {argument!r} of type {type(argument).__name__}"
        )
    return [
        checks.expression(name, expr).alias(checks.column_name("column_name", name))
        for name, expr in argument.items()
    ]


# -- rows and blocks


def repartition(
    source: Input,
    num_blocks: int | None,
    target_num_rows_per_block: int | None,
    *,
    strict: bool,
    shuffle: bool,
    keys: list[str] | None,
    sort: bool,
) -> Repartition | HashPartition:
    """Build `Dataset.repartition`."""
    if num_blocks is not None and target_num_rows_per_block is not None:
        raise ValueError(
            f"num_blocks={num_blocks} and target_num_rows_per_block={target_num_rows_per_block} "
            "exclude each other: pass one of them"
        )
    if target_num_rows_per_block is not None:
        if shuffle:
            raise ValueError(
                "shuffle=True goes with num_blocks, not with target_num_rows_per_block: "
                "call random_shuffle() before"
            )
        _warn_ignored("target_num_rows_per_block is given", keys=keys, sort=sort)
        rows = checks.count("target_num_rows_per_block", target_num_rows_per_block, least=1)
        return Repartition(input=source.node, target_num_rows=rows, strict=strict)
    _warn_ignored("target_num_rows_per_block is not given", strict=strict)
    if keys is not None:
        names = checks.column_names("keys", keys)
        if not names:
            raise ValueError("keys=[] names no column: pass at least one, or leave keys out")
        checks.keys(source.known_schema(), names, "partition by")
        parts = _optional_count("num_blocks", num_blocks)
        return HashPartition(input=source.node, keys=names, num_blocks=parts, sort=sort)
    if num_blocks is None:
        raise ValueError(
            "repartition needs num_blocks, target_num_rows_per_block or keys: pass one of them"
        )
    _warn_ignored("keys are not given", sort=sort)
    parts = checks.count("num_blocks", num_blocks, least=1)
    # A shuffle assigns each row to a random block, so that blocks differ in size.
    shuffled = RandomShuffle(input=source.node, seed=0) if shuffle else source.node
    return Repartition(input=shuffled, num_blocks=parts)


def random_shuffle(
    source: Input, seed: Seed, num_blocks: int | None, options: Options
) -> RandomShuffle:
    """Build `Dataset.random_shuffle`."""
    resources_of(options)
    return RandomShuffle(
        input=source.node,
        seed=checks.seed(seed),
        num_blocks=_optional_count("num_blocks", num_blocks),
    )


def sort(
    source: Input,
    key: str | list[str],
    descending: bool | list[bool],
    boundaries: list[int | float] | None,
) -> Sort:
    """Build `Dataset.sort`."""
    if not isinstance(key, str | list | tuple) or not key:
        raise ValueError(
            f"key={key!r} is not a sort key: pass the name of a column or a list of names"
        )
    keys = checks.column_names("key", key)
    checks.keys(source.known_schema(), keys, "sort by")
    return Sort(
        input=source.node,
        keys=keys,
        descending=_directions(keys, descending),
        boundaries=_boundaries(boundaries),
    )


def cache(source: Input, path: str | os.PathLike[str] | None) -> Cache:
    """Build `Dataset.cache`."""
    target = None
    if path is not None:
        # A local path becomes absolute, since executions may run in other processes.
        filesystem, (resolved,) = filesystems.resolve(path)
        target = resolved if storage.is_local(filesystem) else os.fspath(path)
    return Cache(input=seeds.with_indices(source.node), path=target, slot=CacheSlot())


def _optional_count(name: str, value: int | None) -> int | None:
    return None if value is None else checks.count(name, value, least=1)


def _directions(keys: Sequence[str], descending: object) -> tuple[bool, ...]:
    directions = [descending] * len(keys) if isinstance(descending, bool) else descending
    if not isinstance(directions, list | tuple) or not all(
        isinstance(each, bool) for each in directions
    ):
        raise TypeError(
            f"descending={descending!r} is not a direction: "
            "pass True, False, or a list with one of them for each key"
        )
    if len(directions) != len(keys):
        raise ValueError(
            f"descending={descending} has {len(directions)} directions for {len(keys)} keys: "
            "pass one for each key, or one for all"
        )
    return tuple(directions)


def _boundaries(boundaries: object) -> tuple[int | float, ...] | None:
    if not boundaries:
        return None
    if not isinstance(boundaries, list | tuple) or not all(
        isinstance(each, int | float) for each in boundaries
    ):
        raise ValueError(
            f"boundaries={boundaries!r} is not a list of numbers: "
            "pass the values of the first key at which blocks begin"
        )
    return tuple(sorted(set(boundaries)))


def _warn_ignored(reason: str, **arguments: object) -> None:
    for name, value in arguments.items():
        if value:
            # The warning names the line of the program: past `repartition` here and in `Dataset`.
            warnings.warn(f"{name}={value!r} is ignored because {reason}", stacklevel=5)


# -- groups


def check_groups(source: Input, key: Keys, num_partitions: int | None) -> None:
    """Check the arguments of `Dataset.groupby`."""
    names = () if key is None else checks.key_names("key", key)
    checks.keys(source.known_schema(), names, "group by")
    _optional_count("num_partitions", num_partitions)


def aggregate(
    source: Input, keys: tuple[str, ...], aggs: tuple[AggregateFn, ...], num_blocks: int | None
) -> Aggregate:
    """Build `GroupedData.aggregate`."""
    if not aggs:
        raise ValueError("aggregate needs at least one aggregator, such as Count() or Sum('x')")
    for each in aggs:
        if not isinstance(each, AggregateFn):
            raise TypeError(
                f"{each!r} is of type {type(each).__name__}, not an aggregator: "
                "pass AggregateFns such as Count() or Sum('x')"
            )
    schema = source.known_schema()
    if schema is not None:
        phases.check(schema, keys, aggs)
    return Aggregate(input=source.node, keys=keys, aggregates=aggs, num_blocks=num_blocks)


def map_groups(
    source: Input,
    keys: tuple[str, ...],
    function: Callable[..., object],
    options: Options,
    *,
    batch_format: BatchFormat,
    zero_copy: bool,
    num_blocks: int | None,
) -> MapGroups:
    """Build `GroupedData.map_groups`."""
    blocks.check_batch_format(batch_format)
    return MapGroups(
        input=source.node,
        function=user_function(function, options),
        keys=keys,
        batch_format=batch_format,
        zero_copy=zero_copy,
        num_blocks=num_blocks,
    )


def group_column(
    source: Input,
    keys: tuple[str, ...],
    name: str,
    expr: Expr,
    options: Options,
    *,
    num_blocks: int | None,
) -> Node:
    """Build `GroupedData.with_column`: a user function gets the columns of one group."""
    columns = (star(), *_named({name: expr}))
    checks.expressions(source.known_schema(), columns)
    if properties.functions_in(columns):
        if not expr.is_idempotent():
            raise ValueError(
                f"{expr!r} has random numbers or ids in an expression with a user function, which "
                "is computed group by group: add them as a column before `groupby`"
            )
        project = functools.partial(expressions.project, expressions=columns)
        return map_groups(
            source,
            keys,
            project,
            options,
            batch_format="pyarrow",
            zero_copy=True,
            num_blocks=num_blocks,
        )
    # Other expressions depend on one row only.
    projected = _project(source, options, expressions=columns)
    if not keys:
        return projected
    grouped = HashPartition(input=source.node, keys=keys, num_blocks=num_blocks, sort=True)
    return projected.with_inputs([grouped])


# -- several inputs


def mix(
    parts: tuple[Node, ...], weights: list[float] | None, stopping_condition: MixStoppingCondition
) -> Mix:
    """Build `Dataset.mix`."""
    given = [1.0] * len(parts) if weights is None else list(weights)
    if len(given) != len(parts):
        raise ValueError(
            f"weights={weights} has {len(given)} weights for {len(parts)} datasets: "
            "pass one for each, this dataset's first"
        )
    if not all(isinstance(weight, int | float) and 0 < weight < math.inf for weight in given):
        raise ValueError(
            f"weights={weights} are not all positive numbers: "
            "leave out a dataset that should contribute no rows"
        )
    if not isinstance(stopping_condition, MixStoppingCondition):
        raise TypeError(
            f"stopping_condition={stopping_condition!r} is of type "
            f"{type(stopping_condition).__name__}: pass a MixStoppingCondition"
        )
    shortest = stopping_condition is MixStoppingCondition.STOP_ON_SHORTEST
    return Mix(
        parts=parts,
        weights=tuple(map(float, given)),
        stop_when="shortest" if shortest else "longest",
    )


def join(
    left: Input,
    right: Input,
    join_type: JoinType,
    num_partitions: int,
    on: Sequence[str],
    right_on: Sequence[str] | None,
    *,
    left_suffix: str | None,
    right_suffix: str | None,
    partition_size_hint: int | None,
    worker_options: Options | None,
    validate_schemas: bool,
) -> Join:
    """Build `Dataset.join`."""
    left_keys, right_keys = _join_keys(on, right_on)
    num_blocks = checks.count("num_partitions", num_partitions, least=1)
    join_kernel.check_type(join_type)
    if partition_size_hint is not None:
        # The warning names the line of the program: past `Dataset.join` and its wrapper.
        warnings.warn(
            "partition_size_hint is ignored: partitions have no size limit",
            DeprecationWarning,
            stacklevel=4,
        )
    resources_of(worker_options or {})
    schemas = [side.schema() if validate_schemas else side.known_schema() for side in (left, right)]
    checks.keys(schemas[0], left_keys, "join on")
    checks.keys(schemas[1], right_keys, "join on")
    if validate_schemas:
        _check_key_types(schemas[0], schemas[1], left_keys, right_keys)
    node = Join(
        parts=(left.node, right.node),
        join_type=join_type,
        left_on=left_keys,
        right_on=right_keys,
        left_suffix=left_suffix,
        right_suffix=right_suffix,
        num_blocks=num_blocks,
    )
    if schemas[0] is not None and schemas[1] is not None:
        properties.joined_schema(node, schemas[0], schemas[1])
    return node


def _join_keys(on: object, right_on: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
    for name, value in (("on", on), ("right_on", right_on or on)):
        if not isinstance(value, tuple | list) or not value:
            raise ValueError(f"{name}={value!r} is not a tuple of keys: write {name}=('id',)")
    left, right = checks.column_names("on", on), checks.column_names("right_on", right_on or on)
    if len(left) != len(right):
        raise ValueError(
            f"on={on} has {len(left)} keys and right_on={right_on} has {len(right)}: "
            "pass equally many for both sides"
        )
    return left, right


def _check_key_types(
    left: pa.Schema | None,
    right: pa.Schema | None,
    left_keys: tuple[str, ...],
    right_keys: tuple[str, ...],
) -> None:
    """Raise ValueError unless the keys of both sides have the same types."""
    if left is None or right is None:
        return
    for name, right_name in zip(left_keys, right_keys, strict=True):
        types = left.field(name).type, right.field(right_name).type
        if types[0] != types[1]:
            raise ValueError(
                f"on={name!r} has the type {types[0]} on the left and {types[1]} on the right "
                f"(column {right_name!r}): cast one of them, or leave out validate_schemas to join "
                "types that can be compared"
            )


# -- writes


def write(source: Input, sink: Datasink[Any], options: Options) -> Write:
    """Build the writes of a dataset; `options` are `WriteOptions`."""
    return Write(
        input=source.node,
        sink=sink,
        concurrency=_optional_count("concurrency", options.get("concurrency")),
        resources=checked_resources(options.get("ray_remote_args") or {}),
    )
