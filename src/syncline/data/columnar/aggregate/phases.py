"""Aggregation over many blocks in three phases: `partial` for each block, `merge` of their results,
`finalize`.

Between the phases a group is one row: its keys and the states of all aggregators. These tables can
be concatenated, partitioned by the keys and merged in any grouping; their order is the order of
lists and of first appearances. Columnar aggregators share one pass over the keys; others are called
group by group, and their accumulators are pickled.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.columnar import columns, schemas, tensors
from syncline.data.columnar.aggregate.base import AggregateFn, Result, works_by_columns
from syncline.data.columnar.columns import Scalar
from syncline.data.columnar.kernels import group, join, sort
from syncline.data.columnar.kernels import keys as key_columns
from syncline.data.columnar.kernels.group import Groups, Measure
from syncline.data.columnar.schemas import SchemaMismatchError


def check(schema: pa.Schema, keys: str | Sequence[str], aggregates: Sequence[AggregateFn]) -> None:
    """Raise UnknownColumnError for keys and columns that the schema lacks, TypeError or ValueError
    for wrong types.
    """
    partial(blocks.empty(schema), keys, aggregates)


def partial(
    table: pa.Table, keys: str | Sequence[str], aggregates: Sequence[AggregateFn]
) -> pa.Table:
    """Return one row per group of the block: keys and states. Without keys all rows are one group;
    no rows are no group.
    """
    names = key_columns.names_of(keys)
    if not table.num_columns and not table.num_rows:
        return table
    schemas.require_columns(names, table.column_names)
    for aggregate in aggregates:
        aggregate.check(table.schema)
    # One object per column, so that equal measures are computed once.
    inputs = {name: table.column(name) for aggregate in aggregates for name in aggregate.columns()}
    targets = [
        inputs[aggregate.columns()[0]] if aggregate.columns() else None for aggregate in aggregates
    ]
    measures = [
        a.measures(column) if works_by_columns(a) else []
        for a, column in zip(aggregates, targets, strict=True)
    ]
    groups, measured = _measure(table, names, measures, aggregates)
    states: dict[str, Result] = {}
    for index, aggregate in enumerate(aggregates):
        if works_by_columns(aggregate):
            found = aggregate.summarize(measured[index], targets[index], groups)
        else:
            found = [_accumulated(aggregate, table, groups)]
        states.update({_state(index, number): state for number, state in enumerate(found)})
    return _rows(groups, states)


def merge(
    partials: Sequence[pa.Table], keys: str | Sequence[str], aggregates: Sequence[AggregateFn]
) -> pa.Table:
    """Merge tables of `partial` or `merge` to one row per group. Raise SchemaMismatchError for
    columns of differing types.
    """
    try:
        table = blocks.concat([piece for piece in partials if piece.num_columns])
    except SchemaMismatchError as error:
        raise SchemaMismatchError(
            _STATE.sub(lambda found: aggregates[int(found[1])].name, str(error))
        ) from None
    if not table.num_columns:
        return table
    inputs = [_states(table, index) for index in range(len(aggregates))]
    measures = [
        a.merges(found) if works_by_columns(a) else []
        for a, found in zip(aggregates, inputs, strict=True)
    ]
    groups, measured = _measure(table, key_columns.names_of(keys), measures, aggregates)
    states: dict[str, Result] = {}
    for index, aggregate in enumerate(aggregates):
        if works_by_columns(aggregate):
            united = aggregate.unite(measured[index], inputs[index], groups)
        else:
            united = [_combined(aggregate, inputs[index][0], groups)]
        states.update({_state(index, number): state for number, state in enumerate(united)})
    return _rows(groups, states)


def finalize(
    table: pa.Table, keys: str | Sequence[str], aggregates: Sequence[AggregateFn]
) -> pa.Table:
    """Return the keys and a column per aggregator, in order of the keys, from the result of one
    `merge`.

    Without keys there is always one row, even without input rows: counts are 0, lists empty, other
    results null.
    """
    names = key_columns.names_of(keys)
    results: dict[str, Result] = {
        name: table.column(name) for name in names if name in table.column_names
    }
    for index, aggregate in enumerate(aggregates):
        # The second of two results with one name gets the suffix `_2`.
        name = join.free_name(aggregate.name, results, first=2)
        if not names and not table.num_rows:
            results[name] = _of_nothing(name, aggregate)
        elif table.num_columns:
            results[name] = _results(aggregate, _states(table, index))
    result = blocks.from_columns(results, table.num_rows)
    return sort.sort(result, names) if names and result.num_rows else result


def aggregate(
    table: pa.Table, keys: str | Sequence[str], aggregates: Sequence[AggregateFn]
) -> pa.Table:
    """Run all phases for rows in one table."""
    return finalize(partial(table, keys, aggregates), keys, aggregates)


def _measure(
    table: pa.Table,
    names: list[str],
    measures: list[list[Measure]],
    aggregates: Sequence[AggregateFn],
) -> tuple[Groups, list[list[pa.ChunkedArray]]]:
    """Return the groups, and the measures of each aggregator."""
    with_rows = any(not works_by_columns(a) or a.needs_rows for a in aggregates)
    groups, measured = group.measure(
        table, names, [measure for own in measures for measure in own], with_rows=with_rows
    )
    rest: Iterator[pa.ChunkedArray] = iter(measured)
    return groups, [[next(rest) for _ in own] for own in measures]


def _accumulated(aggregate: AggregateFn, table: pa.Table, groups: Groups) -> pa.Array:
    keys = _key_values(groups)
    slices = zip(keys, groups.slices(table), strict=True)
    return tensors.object_array(
        [aggregate.accumulate_block(aggregate.init(key), piece) for key, piece in slices]
    )


def _key_values(groups: Groups) -> list[Scalar]:
    """Return the arguments of `init`: the value of a single key, a tuple of several, None without
    keys.
    """
    lists = [columns.values_of(column) for column in groups.keys.columns]
    if not lists:
        return [None] * len(groups)
    return lists[0] if len(lists) == 1 else list(zip(*lists, strict=True))


def _combined(aggregate: AggregateFn, states: pa.ChunkedArray, groups: Groups) -> pa.Array:
    accumulators = columns.values_of(states)
    merged = []
    for start, end in zip(groups.offsets[:-1].tolist(), groups.offsets[1:].tolist(), strict=True):
        first, *others = groups.order[start:end].tolist()
        accumulator = accumulators[first]
        for row in others:
            accumulator = aggregate.merge(accumulator, accumulators[row])
        merged.append(accumulator)
    return tensors.object_array(merged)


def _results(aggregate: AggregateFn, states: list[pa.ChunkedArray]) -> Result:
    if works_by_columns(aggregate):
        return aggregate.results(states)
    return columns.from_values(
        aggregate.name,
        [_plain(aggregate.finish(accumulator)) for accumulator in columns.values_of(states[0])],
    )


def _of_nothing(name: str, aggregate: AggregateFn) -> pa.Array:
    if works_by_columns(aggregate):
        value = aggregate.of_nothing
        return columns.from_values(name, [list(value) if isinstance(value, tuple) else value])
    return columns.from_values(name, [_plain(aggregate.finish(aggregate.init(None)))])


def _plain(value: object) -> object:
    """Convert a result to a type that columns can hold."""
    if isinstance(value, pa.Scalar):
        return value.as_py()
    if isinstance(value, np.generic):
        return value.item()
    return sorted(value, key=repr) if isinstance(value, set | frozenset) else value


_STATE = re.compile(r"__state_(\d+)_\d+")


def _state(index: int, number: int) -> str:
    return f"__state_{index}_{number}"


def _states(table: pa.Table, index: int) -> list[pa.ChunkedArray]:
    prefix = _state(index, 0)[:-1]
    names = sorted(
        (name for name in table.column_names if name.startswith(prefix)),
        key=lambda name: int(name[len(prefix) :]),
    )
    return [table.column(name) for name in names]


def _rows(groups: Groups, states: dict[str, Result]) -> pa.Table:
    named = dict(zip(groups.keys.column_names, groups.keys.columns, strict=True))
    return blocks.from_columns({**named, **states}, len(groups))
