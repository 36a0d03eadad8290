"""Stages of small plans: which nodes share tasks, where they run, how they are cut; and the rows
that come out.
"""

import dataclasses
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem
from pyarrow import fs as pyarrow_fs

from syncline.data.columnar.aggregate import AggregateFn, AsList, Count, Sum
from syncline.data.columnar.expressions import col, star, udf
from syncline.data.context import DataContext
from syncline.data.execute import physical_plan as st
from syncline.data.execute.physical_plan import ExecutionLimits
from syncline.data.io.sinks.datasink import Datasink
from syncline.data.io.sources.parquet import ParquetDatasource
from syncline.data.io.sources.range import RangeDatasource
from syncline.data.io.sources.torch_dataset import TorchDatasource
from syncline.data.io.sources.webdataset import WebDatasetDatasource
from syncline.data.plan import lowering
from syncline.data.plan import nodes as n
from syncline.data.plan.compute import ActorPoolStrategy, Resources, TaskPoolStrategy
from syncline.data.plan.rules import optimize
from tests.data.plan.plan_helpers import (
    GPU,
    MIB,
    SHAPE,
    Opaque,
    batches,
    function,
    grouped,
    held,
    lowered,
    mapped,
    memory,
    names,
    numbers,
    project,
    rows_of,
    run,
    sorted_by,
    where,
)

TABLE = pa.table({"a": list(range(40)), "b": [value % 7 for value in range(40)]})


def add_one(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": row["id"] + 1}


class RemoteFiles(pyarrow_fs.FSSpecHandler):
    """The local disk, for pyarrow a filesystem that it does not know."""

    def __init__(self) -> None:
        super().__init__(LocalFileSystem())


class Model:
    def __call__(self, batch: Any) -> Any:
        return batch


@udf(return_dtype=pa.int64())
def double(values: pa.Array) -> pa.Array:
    return pa.array([2 * value for value in values.to_pylist()])


@udf(return_dtype=pa.int64())
class Scale:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    def __call__(self, values: pa.Array) -> pa.Array:
        return pa.array([self.factor * value for value in values.to_pylist()])


class Sink(Datasink[int]):
    def __init__(
        self,
        *,
        min_rows: int | None = None,
        distributed: bool = True,
        done: frozenset[int] = frozenset(),
    ) -> None:
        self._min_rows, self._distributed, self._done = min_rows, distributed, done

    def write(self, blocks: Any, ctx: Any) -> int:
        return sum(block.num_rows for block in blocks)

    @property
    def min_rows_per_write(self) -> int | None:
        return self._min_rows

    @property
    def supports_distributed_writes(self) -> bool:
        return self._distributed

    def positions_done(self) -> frozenset[int]:
        return self._done


# -- fusion


def test_reads_and_expressions_share_tasks_on_threads() -> None:
    (stage,) = lowered(
        where(project(numbers(), star(), (col("id") * 2).alias("twice")), col("twice") > 10)
    )
    assert stage.name == "ReadRange->Project->Filter"
    assert stage.executor == st.Threads()
    assert not stage.keeps_rows
    assert rows_of([stage]).column("id").to_pylist() == list(range(6, 100))


def test_user_functions_take_reads_and_expressions_into_worker_processes() -> None:
    (stage,) = lowered(project(mapped(mapped(numbers(), add_one), add_one), star()))
    assert stage.name == "ReadRange->Map(add_one)->Map(add_one)->Project"
    assert stage.executor == st.Workers()
    assert stage.keeps_rows
    assert rows_of([stage]).column("id").to_pylist() == list(range(2, 102))


def test_classes_get_actors_and_later_expressions_join_them() -> None:
    pool = ActorPoolStrategy(min_size=1, max_size=3, max_tasks_in_flight_per_actor=2)
    plan = project(batches(project(numbers(), star()), Model, compute=pool, resources=GPU), star())
    read, model = lowered(plan)
    assert names([read, model]) == ["ReadRange->Project", "MapBatches(Model)->Project"]
    assert model.executor == st.Actors(
        min_size=1, max_size=3, initial_size=1, in_flight=2, resources=GPU
    )
    assert model.slots == 0.0
    assert model.grouping == st.BundleBlocks(min_rows=1)


def test_functions_after_actors_get_their_own_tasks() -> None:
    plan = mapped(batches(numbers(), Model, compute=ActorPoolStrategy(size=2)), add_one)
    assert names(lowered(plan)) == ["ReadRange", "MapBatches(Model)", "Map(add_one)"]


@pytest.mark.parametrize(
    ("first", "second", "stages"),
    [
        ({}, {"resources": GPU}, 2),
        ({"resources": GPU}, {"resources": GPU}, 2),  # the read is separate
        ({"resources": Resources(num_cpus=2)}, {"resources": Resources(num_cpus=1)}, 3),
        ({"resources": Resources(num_cpus=1)}, {}, 1),
        ({"compute": TaskPoolStrategy(2)}, {"compute": TaskPoolStrategy(3)}, 2),
        ({"compute": TaskPoolStrategy(2)}, {}, 1),
        ({"resources_fn": dict}, {"resources_fn": Model}, 3),
    ],
)
def test_functions_with_other_resources_get_their_own_tasks(
    first: dict[str, Any], second: dict[str, Any], stages: int
) -> None:
    assert len(lowered(mapped(mapped(numbers(), add_one, **first), add_one, **second))) == stages


def test_pool_size_applies_to_all_fused_steps() -> None:
    (stage,) = lowered(mapped(mapped(numbers(), add_one, compute=TaskPoolStrategy(2)), add_one))
    assert stage.executor == st.Workers(size=2)


def test_expressions_with_user_functions_run_in_worker_processes_and_classes_in_actors() -> None:
    (stage,) = lowered(project(numbers(), double(col("id")).alias("x")))
    assert stage.executor == st.Workers()
    read, scaled = lowered(project(numbers(), Scale(3)(col("id")).alias("x")))
    assert isinstance(scaled.executor, st.Actors)
    assert read.executor == st.Threads()
    (filtered,) = lowered(where(numbers(), double(col("id")) > 3))
    assert filtered.executor == st.Workers()


def test_time_limit_of_a_chain_is_the_shortest() -> None:
    (stage,) = lowered(
        mapped(mapped(mapped(numbers(), add_one, timeout_s=5.0), add_one), add_one, timeout_s=3.0)
    )
    assert stage.chain is not None
    assert stage.chain.timeout_s == 3.0


def test_python_sources_read_in_worker_processes_unless_they_are_local() -> None:
    (stage,) = lowered(n.Read(source=Opaque(RangeDatasource(10, column_name="id"))))
    assert stage.executor == st.Workers()
    read, map_ = lowered(
        mapped(
            n.Read(source=Opaque(RangeDatasource(10, column_name="id"), distributed=False)), add_one
        )
    )
    assert (read.executor, map_.executor) == (st.Threads(), st.Workers())


def test_remote_files_are_read_ahead_on_threads_beside_the_functions(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "0.parquet")
    remote = pyarrow_fs.PyFileSystem(RemoteFiles())
    source = ParquetDatasource(str(tmp_path), filesystem=remote)
    read, map_ = lowered(mapped(where(n.Read(source=source), col("a") > 3), add_one))
    assert (read.slots, read.executor) == (0.0, st.Threads(size=4))
    assert names([read, map_]) == ["ReadParquet->Filter", "Map(add_one)"]
    # With a number of CPUs or of tasks, the program has decided.
    node = n.Read(source=source, concurrency=3)
    assert lowered(node)[0].executor == st.Threads(size=3)
    node = n.Read(source=source, resources=Resources(num_cpus=1))
    assert len(lowered(mapped(node, add_one))) == 1


def test_sources_with_user_functions_read_in_worker_processes(tmp_path: Path) -> None:
    shard = tmp_path / "shard.tar"
    shard.write_bytes(bytes(10240))
    executors = [
        lowered(n.Read(source=source))[0].executor
        for source in (
            WebDatasetDatasource(str(shard)),
            WebDatasetDatasource(str(shard), decoder=[add_one]),
            TorchDatasource([1, 2, 3]),
        )
    ]
    assert executors == [st.Threads(), st.Workers(), st.Workers()]


# -- batches


def test_batches_share_the_tasks_of_a_read_that_has_enough_rows() -> None:
    assert names(lowered(batches(numbers(1000, tasks=4), len, size=250))) == [
        "ReadRange->MapBatches(len)"
    ]
    assert names(lowered(batches(numbers(100, tasks=1), len, size=250))) == [
        "ReadRange->MapBatches(len)"
    ]


def test_small_blocks_are_bundled_to_a_batch() -> None:
    _, stage = lowered(batches(numbers(1000, tasks=5), len, size=250))
    assert stage.grouping == st.BundleBlocks(min_rows=250)


def test_tasks_of_unknown_size_are_not_bundled() -> None:
    assert len(lowered(batches(where(numbers(1000, tasks=5), col("id") > 3), len, size=250))) == 1


def test_bundles_grow_for_later_batches() -> None:
    keeping = batches(held(TABLE), len, size=3, keeps=True)
    _, stage = lowered(batches(keeping, len, size=9))
    assert stage.grouping == st.BundleBlocks(min_rows=9)
    _, unknown = lowered(batches(batches(held(TABLE), len, size=3), len, size=9))
    assert unknown.grouping == st.BundleBlocks(min_rows=3)


# -- limits, order, several inputs


def test_limit_on_a_read_of_known_sizes_needs_no_stage() -> None:
    (stage,) = lowered(
        optimize(n.Limit(input=mapped(numbers(100, tasks=4), add_one), limit=30), DataContext())
    )
    assert stage.name == "ReadRange->Limit(30)->Map(add_one)"
    assert isinstance(stage.grouping, st.SourceTasks)
    assert [task.num_rows for task in stage.grouping.payloads] == [25, 5]
    assert rows_of([stage]).column("id").to_pylist() == list(range(1, 31))


def test_other_limits_are_a_stage() -> None:
    stages = lowered(n.Limit(input=where(numbers(), col("id") > 3), limit=5))
    assert stages[-1].grouping == st.LimitRows(rows=5)
    assert stages[-1].chain is None
    assert rows_of(stages).column("id").to_pylist() == [4, 5, 6, 7, 8]
    assert isinstance(
        lowered(
            n.Limit(input=n.Read(source=Opaque(RangeDatasource(0, column_name="id"))), limit=5)
        )[-1].grouping,
        st.LimitRows,
    )


def test_repartition_gives_the_requested_blocks() -> None:
    stages = lowered(n.Repartition(input=held(TABLE), num_blocks=3))
    assert stages[-1].grouping == st.RepartitionRows(parts=3)
    assert stages[-1].chain is not None
    assert stages[-1].chain.max_block_bytes is None
    assert [block.num_rows for block in run(stages)] == [13, 13, 14]
    exact = lowered(n.Repartition(input=held(TABLE), target_num_rows=15, strict=True))
    assert exact[-1].grouping == st.RebatchRows(rows=15, strict=True)
    assert [block.num_rows for block in run(exact)] == [15, 15, 10]


def test_functions_after_repartition_make_blocks_of_the_usual_size() -> None:
    _, stage = lowered(mapped(n.Repartition(input=held(TABLE), num_blocks=3), add_one))
    assert stage.name == "Repartition->Map(add_one)"
    assert stage.chain is not None
    assert stage.chain.max_block_bytes == SHAPE.block_bytes(DataContext()) == 8 * MIB


def test_several_inputs() -> None:
    union = lowered(n.Union(parts=(held(TABLE), numbers(), held(TABLE))))
    assert union[-1] == st.Stage(name="Union", inputs=(0, 1, 2), grouping=st.UnionInputs())
    mix = lowered(n.Mix(parts=(held(TABLE), numbers()), weights=(0.3, 0.7), stop_when="longest"))
    assert mix[-1].grouping == st.MixInputs(weights=(0.3, 0.7), until_shortest=False)
    zipped = lowered(project(n.Zip(parts=(held(TABLE), memory(TABLE))), col("a"), col("a_1")))
    assert zipped[-1].grouping == st.ZipInputs()
    assert rows_of(zipped).column_names == ["a", "a_1"]


def test_a_node_that_is_used_twice_is_computed_twice() -> None:
    base = numbers()
    assert names(lowered(n.Union(parts=(base, base)))) == ["ReadRange", "ReadRange", "Union"]


def test_random_order_of_read_tasks_depends_on_the_epoch() -> None:
    plan = optimize(n.RandomizeBlocks(input=numbers(100, tasks=10)), DataContext())
    first, again, next_epoch = (
        rows_of(lowered(plan, epoch=epoch)).column("id").to_pylist() for epoch in (0, 0, 1)
    )
    assert first == again != next_epoch
    assert sorted(first) == sorted(next_epoch) == list(range(100))


def test_epoch_reaches_sources_and_tasks() -> None:
    context = DataContext()
    (stage,) = lowered(numbers(), context=context, epoch=3)
    assert stage.chain is not None
    assert stage.chain.context._execution_idx == 3
    assert context._execution_idx == 0


# -- all to all


def test_small_aggregation_is_a_partial_step_and_one_sorted_partition() -> None:
    stages = lowered(grouped(memory(TABLE.slice(0, 20), TABLE.slice(20)), ["b"], Sum("a"), Count()))
    assert names(stages) == ["ReadTables->PartialAggregate", "Aggregate"]
    assert all(stage.executor == st.Threads() for stage in stages)
    result = rows_of(stages)
    assert result.column("b").to_pylist() == list(range(7))
    assert sum(result.column("sum(a)").to_pylist()) == sum(range(40))


def test_aggregation_without_keys_has_one_partition() -> None:
    stages = lowered(grouped(memory(TABLE), [], Count()))
    assert isinstance(stages[-1].grouping, st.ExchangeRows)
    assert stages[-1].grouping.parts == 1
    assert rows_of(stages).to_pylist() == [{"count()": 40}]


def test_user_accumulators_run_in_worker_processes() -> None:
    own = AggregateFn(
        init=lambda key: 0,
        merge=lambda a, b: a + b,
        accumulate_row=lambda a, row: a + row["a"],
        name="own",
    )
    stages = lowered(grouped(memory(TABLE), ["b"], own))
    assert [stage.executor for stage in stages] == [st.Workers(), st.Workers()]
    assert sum(rows_of(stages).column("own").to_pylist()) == sum(range(40))


def test_sort_is_direct_for_small_inputs_and_by_sampled_ranges_otherwise() -> None:
    stages = lowered(sorted_by(numbers(1000, tasks=4), "id", descending=True))
    grouping = stages[-1].grouping
    assert isinstance(grouping, st.ExchangeRows)
    assert grouping.parts is None
    assert grouping.default_parts == 4
    assert rows_of(stages).column("id").to_pylist() == list(range(999, -1, -1))
    ranges = with_parts(stages, 5)
    assert len(run(ranges)) == 5
    assert rows_of(ranges).column("id").to_pylist() == list(range(999, -1, -1))


def with_parts(stages: tuple[st.Stage, ...], parts: int) -> tuple[st.Stage, ...]:
    last = stages[-1]
    assert isinstance(last.grouping, st.ExchangeRows)
    return (
        *stages[:-1],
        dataclasses.replace(last, grouping=dataclasses.replace(last.grouping, parts=parts)),
    )


def test_sort_by_given_boundaries_makes_their_blocks() -> None:
    plan = n.Sort(input=numbers(10, tasks=3), keys=("id",), descending=(False,), boundaries=(3, 7))
    assert [block.column("id").to_pylist() for block in run(lowered(plan))] == [
        [0, 1, 2],
        [3, 4, 5, 6],
        [7, 8, 9],
    ]


def test_shuffle_draws_from_its_seed() -> None:
    plan = n.RandomShuffle(input=numbers(100, tasks=4), seed=5, num_blocks=3)
    first, again = rows_of(lowered(plan, seed=1)), rows_of(lowered(plan, seed=2))
    assert first.equals(again)
    assert (
        sorted(first.column("id").to_pylist()) == list(range(100)) != first.column("id").to_pylist()
    )
    assert len(run(lowered(plan))) == 3
    free = n.RandomShuffle(input=numbers(100, tasks=4))
    assert not rows_of(lowered(free, seed=1)).equals(rows_of(lowered(free, seed=2)))


def test_partition_by_keys_brings_equal_keys_together() -> None:
    found = run(lowered(n.HashPartition(input=memory(TABLE), keys=("b",), num_blocks=3, sort=True)))
    keys = [set(block.column("b").to_pylist()) for block in found]
    assert sum(map(len, keys)) == 7
    assert all(
        block.column("b").to_pylist() == sorted(block.column("b").to_pylist()) for block in found
    )


def test_groups_of_small_inputs_run_in_several_worker_tasks() -> None:
    plan = n.MapGroups(
        input=memory(TABLE), function=function(lambda group: {"n": [len(group["a"])]}), keys=("b",)
    )
    stages = lowered(plan)
    grouping = stages[-1].grouping
    assert isinstance(grouping, st.ExchangeRows)
    assert (grouping.direct_bytes, grouping.default_parts) == (0, 4)
    assert grouping.executor == st.Threads()
    assert stages[-1].executor == st.Workers()
    assert sum(rows_of(stages).column("n").to_pylist()) == 40


def test_join_has_two_ports_and_knows_both_schemas() -> None:
    plan = n.Join(
        parts=(memory(TABLE), memory(TABLE)),
        join_type="inner",
        left_on=("a",),
        right_on=("a",),
        right_suffix="_r",
        num_blocks=3,
    )
    stages = lowered(plan)
    assert stages[-1].inputs == (0, 1)
    assert stages[-1].chain is not None
    assert stages[-1].chain.head.left_schema == TABLE.schema  # type: ignore[attr-defined]
    result = rows_of(stages)
    assert sorted(result.column("a").to_pylist()) == list(range(40))
    assert result.column_names == ["a", "b", "b_r"]


def test_user_functions_do_not_join_the_tasks_of_an_exchange() -> None:
    plan = project(mapped(project(sorted_by(numbers(), "id"), star()), add_one), star())
    assert names(lowered(plan)) == ["ReadRange", "Sort->Project", "Map(add_one)->Project"]


@pytest.mark.parametrize(
    ("rows", "budget_mib", "most", "parts"),
    [
        (1000, 64, 200, 4),
        (100 * MIB, 64, 200, 76),
        (100 * MIB, 64, 10, 10),
        (100 * MIB, 6000, 200, 4),
    ],
)
def test_partitions_fit_into_the_budget(rows: int, budget_mib: int, most: int, parts: int) -> None:
    context = DataContext(default_hash_shuffle_parallelism=most)
    stages = lowered(
        n.RandomShuffle(input=numbers(rows, tasks=2)),
        context=context,
        limits=ExecutionLimits(cpus=2, budget_bytes=budget_mib * MIB),
    )
    grouping = stages[-1].grouping
    assert isinstance(grouping, st.ExchangeRows)
    assert grouping.default_parts == parts


# -- writing


def test_writes_share_the_tasks_of_what_they_write() -> None:
    (stage,) = lowered(n.Write(input=mapped(numbers(100, tasks=4), add_one), sink=Sink()))
    assert stage.name == "ReadRange->Map(add_one)->WriteSink"
    assert sum(rows_of([stage]).column("num_rows").to_pylist()) == 100


def test_writes_of_many_rows_bundle_blocks() -> None:
    _, stage = lowered(n.Write(input=numbers(100, tasks=4), sink=Sink(min_rows=60)))
    assert stage.grouping == st.BundleBlocks(min_rows=60)


def test_local_sinks_write_in_the_driver_process() -> None:
    map_, write = lowered(n.Write(input=mapped(numbers(), add_one), sink=Sink(distributed=False)))
    assert (map_.executor, write.executor) == (st.Workers(), st.Threads())


def test_positions_written_before_are_not_read() -> None:
    (stage,) = lowered(n.Write(input=numbers(100, tasks=4), sink=Sink(done=frozenset({0, 2}))))
    assert isinstance(stage.grouping, st.SourceTasks)
    assert stage.grouping.done == {0, 2}


# -- the first blocks of tasks


def begins_small(node: n.Node) -> list[bool]:
    return [
        stage.chain is not None and stage.chain.first_block_bytes is not None
        for stage in lowered(node)
    ]


def test_streaming_tasks_begin_with_small_blocks() -> None:
    read = numbers(100)
    assert begins_small(read) == [True]
    assert begins_small(mapped(read, Model, compute=ActorPoolStrategy(size=1))) == [True, True]
    assert begins_small(n.Limit(input=mapped(read, add_one), limit=3)) == [True, False]


def test_requested_blocks_do_not_begin_small() -> None:
    assert begins_small(numbers(100, tasks=4)) == [False]
    assert begins_small(n.Repartition(input=numbers(100), target_num_rows=10, strict=True)) == [
        True,
        False,
    ]


def test_exchanges_and_writes_get_no_small_first_blocks() -> None:
    read = numbers(100)
    assert begins_small(n.RandomShuffle(input=read)) == [False, False]
    assert begins_small(n.Repartition(input=read, num_blocks=3)) == [False, False]
    assert begins_small(n.Write(input=read, sink=Sink(min_rows=60))) == [False, True]
    assert begins_small(mapped(sorted_by(mapped(read, add_one), "id"), add_one)) == [
        False,
        False,
        True,
    ]


# -- caches


def test_stages_of_a_cache_do_not_depend_on_their_consumers() -> None:
    cached = n.Cache(input=mapped(numbers(100), add_one))
    below = lowered(cached)
    for node in (
        n.RandomShuffle(input=cached),
        n.Write(input=cached, sink=Sink()),
        mapped(cached, add_one),
    ):
        stages = lowered(node)
        assert names(stages)[:2] == names(below) == ["ReadRange->Map(add_one)", "Cache"]
        assert begins_small(node)[:2] == [True, False]


# -- how many read tasks


@pytest.mark.parametrize(
    ("size", "settings", "cpus", "expected"),
    [
        (80, {}, 2, 4),
        (80, {}, 16, 32),
        (None, {}, 2, 200),
        (50 * MIB, {}, 2, 50),
        (1000 * MIB, {}, 2, 200),
        (1000 * MIB, {"read_op_min_num_blocks": 10}, 2, 125),
        (1000 * MIB, {"min_parallelism": 150}, 2, 150),
        (50 * MIB, {"target_min_block_size": 10 * MIB}, 2, 7),
    ],
)
def test_parallelism(size: int | None, settings: dict[str, int], cpus: int, expected: int) -> None:
    limits = ExecutionLimits(cpus=cpus, budget_bytes=4 * 8 * MIB * cpus)
    assert lowering.read_parallelism(size, DataContext(**settings), limits) == expected


def test_requested_number_of_read_tasks_is_used() -> None:
    (stage,) = lowered(numbers(100, tasks=7))
    assert isinstance(stage.grouping, st.SourceTasks)
    assert len(stage.grouping.payloads) == 7


def test_every_kind_of_node_has_a_lowering() -> None:
    base = memory(TABLE)
    kinds: list[n.Node] = [
        n.FlatMap(input=base, function=function(add_one)),
        n.FilterRows(input=base, function=function(add_one)),
        n.RandomSample(input=base, fraction=0.5),
        n.Cache(input=base),
        grouped(base, ["b"], AsList("a")),
    ]
    assert all(lowered(kind) for kind in kinds)
