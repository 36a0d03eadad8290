"""Small plans, a printer for them, and two ways to run them without an executor: node by node, and
stage by stage.
"""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from syncline.data.columnar import block as blocks
from syncline.data.columnar import expressions, schemas
from syncline.data.columnar.aggregate import phases
from syncline.data.columnar.expressions import Expr
from syncline.data.columnar.kernels import join, partition, sort
from syncline.data.context import DataContext
from syncline.data.execute import physical_plan as st
from syncline.data.execute.physical_plan import ExecutionLimits, TaskState
from syncline.data.execute.task_run import open_chain, run_chain
from syncline.data.io.sources.datasource import BlockMetadata, Datasource, ReadTask
from syncline.data.io.sources.parquet import ParquetDatasource
from syncline.data.io.sources.range import RangeDatasource
from syncline.data.plan import lowering
from syncline.data.plan import nodes as n
from syncline.data.plan.compute import Resources
from syncline.data.plan.lowering import lower

MIB = 1024**2
SHAPE = ExecutionLimits(cpus=2, budget_bytes=64 * MIB)


def numbers(rows: int = 100, tasks: int | None = None) -> n.Read:
    return n.Read(source=RangeDatasource(rows, column_name="id"), parallelism=tasks)


def held(*tables: pa.Table) -> n.Held:
    return n.Held(
        blocks=tuple(
            n.HeldBlock(
                value=table, num_rows=table.num_rows, size_bytes=table.nbytes, schema=table.schema
            )
            for table in tables
        )
    )


class Tables(Datasource):
    """A source of tables that reads only the columns of its projection, one table per task."""

    def __init__(self, tables: Sequence[pa.Table]) -> None:
        self._tables = tables

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,
    ) -> list[ReadTask]:
        return [
            ReadTask(
                functools.partial(_selected, table, self._projected(table.schema).names),
                BlockMetadata(table.num_rows, table.nbytes),
                self._projected(table.schema),
                per_task_row_limit,
            )
            for table in self._tables
        ]

    def estimate_inmemory_data_size(self) -> int:
        return sum(table.nbytes for table in self._tables)

    def schema(self) -> pa.Schema | None:
        if not self._tables:
            return None
        return self._projected(schemas.unify(table.schema for table in self._tables))

    def num_rows(self) -> int:
        return sum(table.num_rows for table in self._tables)

    def supports_projection_pushdown(self) -> bool:
        return True

    @property
    def reads_in_threads(self) -> bool:
        return True


def _selected(table: pa.Table, names: list[str]) -> list[pa.Table]:
    return [table.select(names)]


def memory(*tables: pa.Table) -> n.Read:
    return n.Read(source=Tables(tables))


def parquet(path: Path, table: pa.Table, row_group_size: int = 10) -> n.Read:
    pq.write_table(table, path, row_group_size=row_group_size)
    return n.Read(source=ParquetDatasource(str(path)))


class Opaque(Datasource):
    """A custom source without metadata."""

    def __init__(self, source: Datasource, **answers: Any) -> None:
        self._source = source
        self._answers = answers

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,
    ) -> list[Any]:
        return self._source.get_read_tasks(parallelism, per_task_row_limit, data_context)

    @property
    def supports_distributed_reads(self) -> bool:
        return self._answers.get("distributed", True)

    @property
    def reads_in_threads(self) -> bool:
        return self._answers.get("threads", False)


def function(call: Callable[..., Any], **options: Any) -> n.UserFunction:
    return n.UserFunction(function=call, **options)


def mapped(node: n.Node, call: Callable[..., Any], **options: Any) -> n.MapRows:
    return n.MapRows(input=node, function=function(call, **options))


def batches(
    node: n.Node, call: Callable[..., Any], *, size: Any = None, keeps: bool = False, **options: Any
) -> n.MapBatches:
    return n.MapBatches(
        input=node, function=function(call, **options), batch_size=size, keeps_row_count=keeps
    )


def project(node: n.Node, *exprs: Expr, **options: Any) -> n.Project:
    return n.Project(input=node, expressions=exprs, **options)


def where(node: n.Node, predicate: Expr) -> n.FilterExpr:
    return n.FilterExpr(input=node, predicate=predicate)


def sorted_by(node: n.Node, *keys: str, descending: bool = False) -> n.Sort:
    return n.Sort(input=node, keys=keys, descending=(descending,) * len(keys))


def grouped(node: n.Node, keys: Sequence[str], *aggregates: Any) -> n.Aggregate:
    return n.Aggregate(input=node, keys=tuple(keys), aggregates=aggregates)


def shown(node: n.Node) -> str:
    """Return a plan in one line, starting at the source: `range | Project(id) | Limit(3)`."""
    text = _shown(node)
    if not node.inputs:
        return text
    if len(node.inputs) == 1:
        return f"{shown(node.inputs[0])} | {text}"
    return f"{text}[{', '.join(map(shown, node.inputs))}]"


def _shown(node: n.Node) -> str:
    match node:
        case n.Read():
            predicate = node.source.get_current_predicate()
            columns = "" if node.columns is None else ",".join(node.columns)
            filtered = "" if predicate is None else f" where {predicate!r}"
            ordered = "" if node.task_order is None else " shuffled"
            return f"Read({columns}{filtered}{ordered})"
        case n.Project():
            parts = [*map(repr, node.expressions), *(f"-{name}" for name in node.dropped)]
            parts += [f"{old}->{new}" for old, new in (node.renamed or {}).items()]
            return f"Project({', '.join(parts)})"
        case n.FilterExpr():
            return f"Filter({node.predicate!r})"
        case n.Sort():
            return f"Sort({','.join(node.keys)})"
        case n.Held():
            return "Held"
        case n.MapRows() | n.MapBatches():
            return type(node).__name__
        case n.Aggregate():
            return f"Aggregate({','.join(node.keys)})"
        case n.Limit():
            return f"Limit({node.limit})"
    return type(node).__name__


# -- node by node


def interpreted(node: n.Node) -> pa.Table:
    """Return the rows of a plan, in order if the plan defines one."""
    return _INTERPRETERS[type(node)](node, *map(interpreted, node.inputs))


def _read(node: n.Read) -> pa.Table:
    tasks = lowering.read_tasks(node, None, DataContext(), SHAPE, seed=1, epoch=0)
    return blocks.concat([table for task in tasks for table in task()])


def _projected(node: n.Project, table: pa.Table) -> pa.Table:
    if node.renamed is not None:
        return table.rename_columns([node.renamed.get(name, name) for name in table.column_names])
    table = table.select([name for name in table.column_names if name not in node.dropped])
    return expressions.project(table, node.expressions) if node.expressions else table


_INTERPRETERS: dict[type, Callable[..., pa.Table]] = {
    n.Read: _read,
    n.Held: lambda node: blocks.concat([block.value for block in node.blocks]),
    n.Project: _projected,
    n.FilterExpr: lambda node, table: expressions.filter_rows(table, node.predicate),
    n.MapRows: lambda node, table: (
        blocks.from_rows([node.function.function(row) for row in blocks.rows(table)])
        if table.num_rows
        else table
    ),
    n.MapBatches: lambda node, table: blocks.from_batch(
        node.function.function(blocks.to_batch(table, "pyarrow"))
    ),
    n.Limit: lambda node, table: table.slice(0, node.limit),
    n.Repartition: lambda node, table: table,
    n.HashPartition: lambda node, table: table,
    n.RandomizeBlocks: lambda node, table: table,
    n.RandomShuffle: lambda node, table: partition.permute(table, 1),
    n.Sort: lambda node, table: sort.sort(table, node.keys, node.descending),
    n.Aggregate: lambda node, table: phases.aggregate(table, node.keys, node.aggregates),
    n.Union: lambda node, *tables: blocks.concat(list(tables)),
    n.Zip: lambda node, *tables: functools.reduce(join.zip_tables, tables),
    n.Join: lambda node, left, right: join.join(
        left,
        right,
        node.join_type,
        node.left_on,
        node.right_on,
        left_suffix=node.left_suffix,
        right_suffix=node.right_suffix,
    ),
    n.Cache: lambda node, table: table,
}


# -- stage by stage


def lowered(
    node: n.Node,
    *,
    context: DataContext | None = None,
    limits: ExecutionLimits = SHAPE,
    seed: int = 7,
    epoch: int = 0,
) -> tuple[st.Stage, ...]:
    return lower(node, context or DataContext(), limits, seed=seed, epoch=epoch)


def names(stages: Sequence[st.Stage]) -> list[str]:
    return [stage.name for stage in stages]


def run(stages: Sequence[st.Stage]) -> list[pa.Table]:
    """Return the blocks of the last stage; run every stage to its end before the next."""
    outputs: list[list[pa.Table]] = []
    for stage in stages:
        outputs.append(_run_stage(stage, [outputs[number] for number in stage.inputs]))
    return outputs[-1]


def rows_of(stages: Sequence[st.Stage]) -> pa.Table:
    return blocks.concat(run(stages))


def _run_stage(stage: st.Stage, inputs: list[list[pa.Table]]) -> list[pa.Table]:
    tasks: list[tuple[Any, Any]]
    match stage.grouping:
        case st.SourceBlocks(blocks=held_blocks):
            return [block.value for block in held_blocks]
        case st.UnionInputs():
            return [table for tables in inputs for table in tables]
        case st.LimitRows(rows=rows):
            whole = blocks.concat(inputs[0])
            return [
                whole.slice(0, min(rows, whole.num_rows))
            ]  # Arrow invents rows for tables without columns
        case st.ShuffleBlocks(seed=seed):
            order = np.random.RandomState(seed % 2**32).permutation(len(inputs[0]))
            return [inputs[0][index] for index in order]
        case st.SourceTasks(payloads=payloads, done=done):
            tasks = [((), payload) for number, payload in enumerate(payloads) if number not in done]
        case _:
            tasks = [(ports, None) for ports in _ports(stage.grouping, inputs)]
    assert stage.chain is not None
    open_chain(stage.chain)
    return [
        output.table
        for number, (ports, payload) in enumerate(tasks)
        for output in run_chain(
            stage.chain, ports, payload, TaskState(stage=stage.name, task=number)
        )
    ]


def _ports(grouping: Any, inputs: list[list[pa.Table]]) -> list[tuple[list[pa.Table], ...]]:
    full = [table for table in inputs[0] if table.num_rows] or inputs[0][:1]
    match grouping:
        case st.BundleBlocks(min_rows=least):
            bundles: list[list[pa.Table]] = [[]]
            for table in full:
                if sum(each.num_rows for each in bundles[-1]) >= least:
                    bundles.append([])
                bundles[-1].append(table)
            return [(bundle,) for bundle in bundles]
        case st.RepartitionRows(parts=parts):
            whole = blocks.concat(full)
            bounds = [index * whole.num_rows // parts for index in range(parts + 1)]
            return [
                ([whole.slice(start, end - start)],)
                for start, end in zip(bounds, bounds[1:], strict=False)
            ]
        case st.RebatchRows(rows=rows):
            whole = blocks.concat(full)
            return [
                ([whole.slice(start, rows)],) for start in range(0, max(1, whole.num_rows), rows)
            ]
        case st.ZipInputs():
            return [tuple([blocks.concat(tables)] for tables in inputs)]
        case st.ExchangeRows():
            return _exchanged(grouping, inputs)
    raise AssertionError(grouping)


def _exchanged(
    grouping: st.ExchangeRows, inputs: list[list[pa.Table]]
) -> list[tuple[list[pa.Table], ...]]:
    if (
        grouping.parts is None
        and sum(table.nbytes for tables in inputs for table in tables) <= grouping.direct_bytes
    ):
        return [tuple(inputs)]
    count = grouping.default_parts if grouping.parts is None else grouping.parts
    prepared = None
    if grouping.sample is not None:
        assert grouping.prepare is not None
        prepared = grouping.prepare(
            [grouping.sample(table, number) for number, table in enumerate(inputs[0])], count
        )
    split = [
        [
            partition(table, count, prepared, number)
            for number, table in enumerate(tables)
            if table.num_rows
        ]
        for partition, tables in zip(grouping.partition, inputs, strict=True)
    ]
    return [
        tuple([each.part(index) for each in of_port] for of_port in split) for index in range(count)
    ]


GPU = Resources(num_gpus=1)
