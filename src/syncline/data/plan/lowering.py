"""Lowering: turn a plan into the stages that are executed.

Nodes that work row by row become steps in the tasks of the stage before them (`fusion`); all-to-all
nodes get stages of their own (`exchanges`). A node that is used twice is computed twice.

`map_batches` with a number of rows cuts batches across the blocks of a task. If the tasks before it
have fewer rows than a batch, it gets separate tasks, with blocks bundled until there are enough
rows.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.columnar.kernels import partition
from syncline.data.context import DataContext
from syncline.data.execute.cache import CacheUses, FileCacheWriter, Origin
from syncline.data.execute.physical_plan import (
    BundleBlocks,
    ExecutionLimits,
    ExecutorKind,
    Grouping,
    Head,
    LimitRows,
    MixInputs,
    RebatchRows,
    RepartitionRows,
    ShuffleBlocks,
    SourceBlocks,
    SourceTasks,
    Stage,
    Step,
    TeeBlocks,
    Threads,
    UnionInputs,
    Workers,
    ZipInputs,
)
from syncline.data.execute.steps.block_steps import (
    FilterExprStep,
    ProjectStep,
    RandomSampleStep,
    WriteStep,
)
from syncline.data.execute.steps.function_steps import (
    FilterRowsStep,
    FlatMapStep,
    MapBatchesStep,
    MapRowsStep,
)
from syncline.data.execute.steps.heads import concatenate, pass_blocks, read_payload, zip_ports
from syncline.data.io.sources.datasource import BlockMetadata, Datasource, ReadTask, limit_tasks
from syncline.data.plan import properties, seeds
from syncline.data.plan.compute import ActorPoolStrategy, Resources, TaskPoolStrategy
from syncline.data.plan.exchanges import exchange, partial_step
from syncline.data.plan.fusion import (
    StageDraft,
    StepRequest,
    function_executor,
    task_slots,
    without_cpus,
    worker_executor,
)
from syncline.data.plan.nodes import (
    Aggregate,
    Cache,
    FilterExpr,
    FilterRows,
    FlatMap,
    HashPartition,
    Held,
    Join,
    Limit,
    MapBatches,
    MapGroups,
    Mapped,
    MapRows,
    Mix,
    Node,
    Project,
    RandomizeBlocks,
    RandomSample,
    RandomShuffle,
    Read,
    Repartition,
    Seed,
    Sort,
    Union,
    Write,
    Zip,
)

# Several tasks per CPU keep all CPUs busy when tasks end at different times.
_READ_TASKS_PER_CPU = 2
# Reads of remote storage that are in flight: enough to hide 20 ms per request behind decoding.
_STREAMS_PER_CPU = 2
_LEAST_STREAMS = 4


def lower(
    node: Node,
    context: DataContext,
    limits: ExecutionLimits,
    *,
    seed: int,
    epoch: int,
    caches: CacheUses | None = None,
) -> tuple[Stage, ...]:
    """Return the stages of one execution, inputs before their consumers; the last stage gives the
    output.

    Args:
        node: The plan, usually the result of `rules.optimize`.
        context: The dataset's context; the stages keep it.
        limits: Resources of the execution. The same plan on the same input has the same stages for
            the same limits, seed and epoch.
        seed: Seed of nodes without a fixed seed.
        epoch: Index of the pass over the dataset.
        caches: Use of its caches; None computes their inputs.
    """
    lowering = _Lowering(_Target.of(context, limits, seed, epoch), caches or CacheUses())
    lowering.lower(seeds.with_indices(node))
    return lowering.stages()


def read_parallelism(
    estimated_bytes: int | None, context: DataContext, limits: ExecutionLimits
) -> int:
    """Return the number of read tasks to request from a source.

    It is `read_op_min_num_blocks`, or fewer if blocks would be smaller than
    `target_min_block_size`, more if they would be larger than a block, and at least two per CPU.
    """
    wanted = context.read_op_min_num_blocks
    if wanted == DataContext.read_op_min_num_blocks:
        wanted = context.min_parallelism  # the older name, if only it was changed
    if estimated_bytes is None:
        return max(wanted, _READ_TASKS_PER_CPU * limits.cpus)
    most = estimated_bytes // max(1, context.target_min_block_size)
    least = -(-estimated_bytes // limits.block_bytes(context))
    return max(min(wanted, most), least, _READ_TASKS_PER_CPU * limits.cpus)


def _streams(limits: ExecutionLimits) -> int:
    """Return the number of concurrent read tasks of a source on remote storage."""
    return max(_LEAST_STREAMS, _STREAMS_PER_CPU * limits.cpus)


def read_tasks(
    node: Read,
    limit: int | None,
    context: DataContext,
    limits: ExecutionLimits,
    *,
    seed: int,
    epoch: int,
) -> list[ReadTask]:
    """Return as many read tasks as the first `limit` rows may need, in execution order. If there is
    nothing to read, return a task without rows, for the columns.
    """
    count = node.parallelism or read_parallelism(
        node.source.estimate_inmemory_data_size(), context, limits
    )
    # By name, as Ray does: sources of other projects may take them as `**kwargs`.
    tasks = node.source.get_read_tasks(count, per_task_row_limit=limit, data_context=context)
    if node.task_order is not None:
        state = partition.random_state(
            seeds.resolve(node.task_order.seed, execution_seed=seed, epoch=epoch)
        )
        tasks = [tasks[index] for index in state.permutation(len(tasks)).tolist()]
    needed = tasks if limit is None else limit_tasks(tasks, limit)
    schema = None if needed else node.source.schema()
    if schema is None:
        return needed
    return [ReadTask(functools.partial(_no_rows, schema), BlockMetadata(0, 0), schema)]


class _Target(NamedTuple):
    """The execution that nodes are lowered for; below a cache, the execution that fills it."""

    context: DataContext
    limits: ExecutionLimits
    seed: int
    epoch: int

    @classmethod
    def of(cls, context: DataContext, limits: ExecutionLimits, seed: int, epoch: int) -> _Target:
        if (context._execution_idx, context._execution_seed) != (epoch, seed):
            context = context.copy()
            context._execution_idx, context._execution_seed = epoch, seed
        return cls(context, limits, seed, epoch)


class _Lowering:
    """The stages so far. Each method appends the stages of a node, after those of its inputs, and
    returns the index of the last one.
    """

    def __init__(self, target: _Target, caches: CacheUses) -> None:
        self.drafts: list[StageDraft] = []
        self._target = target
        self._targets: list[_Target] = []  # of each draft
        self._caches = caches

    def stages(self) -> tuple[Stage, ...]:
        """Return the finished stages."""
        small_first = [True] * len(self.drafts)
        for number in reversed(range(len(self.drafts))):
            draft = self.drafts[number]
            for each in draft.inputs:
                # The blocks of a cache must not depend on its consumers.
                small_first[each] = isinstance(draft.grouping, TeeBlocks) or (
                    small_first[number] and not draft.prefers_large_blocks
                )
        return tuple(
            draft.stage(
                target.context, target.limits.block_bytes(target.context), small_first_block=small
            )
            for draft, target, small in zip(self.drafts, self._targets, small_first, strict=True)
        )

    def lower(self, node: Node) -> int:
        """Append the stages of any node."""
        match node:
            case Read():
                return self._read(node)
            case Held():
                return self._add(
                    StageDraft(names=[node.name], grouping=SourceBlocks(blocks=node.blocks))
                )
            case Cache():
                return self._cached(node)
            case Limit():
                return self._limit(node)
            case Repartition():
                return self._repartition(node)
            case RandomShuffle() | Sort() | Aggregate() | HashPartition() | MapGroups() | Join():
                return self._exchange(node)
            case Write():
                return self._write(node)
            case RandomizeBlocks():
                return self._regroup(node, ShuffleBlocks(seed=self._seed(node.seed)))
            case Union():
                return self._regroup(node, UnionInputs())
            case Mix():
                until_shortest = node.stop_when == "shortest"
                return self._regroup(
                    node, MixInputs(weights=node.weights, until_shortest=until_shortest)
                )
            case Zip():
                return self._regroup(node, ZipInputs(), zip_ports)
            case _:
                return self._row_by_row(node)

    def _add(self, draft: StageDraft) -> int:
        self.drafts.append(draft)
        self._targets.append(self._target)
        return len(self.drafts) - 1

    def _regroup(self, node: Node, grouping: Grouping, head: Head | None = None) -> int:
        inputs = self._inputs(node)
        return self._add(StageDraft(names=[node.name], inputs=inputs, grouping=grouping, head=head))

    def _inputs(self, node: Node) -> tuple[int, ...]:
        return tuple(self.lower(each) for each in node.inputs)

    def _seed(self, seed: Seed) -> int:
        return seeds.resolve(seed, execution_seed=self._target.seed, epoch=self._target.epoch)

    # -- sources

    def _read(self, node: Read, limit: int | None = None) -> int:
        context, limits, seed, epoch = self._target
        tasks = read_tasks(node, limit, context, limits, seed=seed, epoch=epoch)
        executor: ExecutorKind = Threads(size=node.concurrency)
        slots = task_slots(node.resources)
        if node.source.supports_distributed_reads and not (
            node.source.reads_in_threads and without_cpus(node.resources) == Resources()
        ):
            executor = Workers(resources=node.resources, size=node.concurrency)
        elif node.source.waits_for_storage and node.resources.num_cpus is None:
            # Threads that wait need no CPU. Functions run in other tasks, so that they have input
            # while the next requests are on their way.
            slots = 0.0
            executor = Threads(size=node.concurrency or _streams(limits))
        return self._add(
            StageDraft(
                names=[node.name],
                grouping=SourceTasks(payloads=tasks),
                head=read_payload,
                executor=executor,
                slots=slots,
                in_driver=not node.source.supports_distributed_reads,
                keeps_rows=True,
                rows_per_task=_min_rows_per_task(tasks),
                fixed_block_count=node.parallelism is not None,
            )
        )

    def _cached(self, node: Cache) -> int:
        """Append a read of the cached rows, or the stages that fill the cache.

        Later steps never join these tasks, so that they get the same blocks whether the cache is
        filled or not.
        """
        outer = self._target
        use = self._caches.of(node, Origin(seed=outer.seed, limits=outer.limits))
        if use.cached is not None:
            return self._add(_cache_read(node.name, use.cached.rows))
        self._target = _Target.of(outer.context, use.origin.limits, use.origin.seed, 0)
        below = self.lower(node.input)
        writer = self._caches.writer(use, outer.context)
        if node.path is not None:
            steps: list[Step] = [writer.step("Keep")] if isinstance(writer, FileCacheWriter) else []
            files = StageDraft(
                names=["Keep"],
                inputs=(below,),
                grouping=BundleBlocks(),
                head=concatenate,
                steps=steps,
                keeps_rows=True,
                whole_blocks=True,  # a file for each
            )
            below = self._add(files)
        self._target = outer
        return self._add(
            StageDraft(names=[node.name], inputs=(below,), grouping=TeeBlocks(writer=writer))
        )

    # -- order-preserving operators

    def _limit(self, node: Limit) -> int:
        if not isinstance(node.input, Read):
            return self._regroup(node, LimitRows(rows=node.limit))
        stage = self._read(node.input, node.limit)
        draft = self.drafts[stage]
        if draft.rows_per_task is None:
            limit = LimitRows(rows=node.limit)
            return self._add(StageDraft(names=[node.name], inputs=(stage,), grouping=limit))
        # The tasks together have exactly the rows of the limit.
        draft.names.append(node.name)
        return stage

    def _repartition(self, node: Repartition) -> int:
        grouping: RebatchRows | RepartitionRows
        if node.target_num_rows is not None:
            grouping = RebatchRows(rows=node.target_num_rows, strict=node.strict)
        else:
            assert node.num_blocks is not None, "a repartition has a number of blocks or of rows"
            grouping = RepartitionRows(parts=node.num_blocks)
        draft = StageDraft(
            names=[node.name],
            inputs=self._inputs(node),
            grouping=grouping,
            head=concatenate,
            keeps_rows=True,
            whole_blocks=True,
            rows_per_task=node.target_num_rows if node.strict else None,
        )
        return self._add(draft)

    def _exchange(
        self, node: RandomShuffle | Sort | Aggregate | HashPartition | MapGroups | Join
    ) -> int:
        inputs = self._inputs(node)
        partial = partial_step(node)
        if partial is not None:
            inputs = (self._add_step(inputs[0], partial),)
        seed = self._seed(node.seed) if isinstance(node, RandomShuffle) else 0
        return self._add(exchange(node, inputs, seed, self._target.context, self._target.limits))

    # -- row by row

    def _row_by_row(self, node: Node) -> int:
        """Append a node that works row by row and those below it. Iterative: loops in programs
        create long chains.
        """
        nodes: list[Node] = []
        while isinstance(node, Project | FilterExpr | RandomSample) or (
            isinstance(node, Mapped) and not isinstance(node, MapGroups)
        ):
            nodes.append(node)
            (node,) = node.inputs
        stage = self.lower(node)
        for each in reversed(nodes):
            stage = self._add_step(stage, self._request(each))
        return stage

    def _add_step(self, below: int, request: StepRequest) -> int:
        """Add a step to the tasks of stage `below`, or to a separate stage."""
        if self.drafts[below].try_add(request):
            return below
        draft = StageDraft(
            names=[],
            inputs=(below,),
            grouping=BundleBlocks(min_rows=request.min_rows, min_bytes=request.min_bytes),
            head=pass_blocks,
            keeps_rows=True,
            executor=request.executor,
            slots=request.slots,
        )
        draft.add(request)
        return self._add(draft)

    def _write(self, node: Write) -> int:
        stage = self._add_step(self.lower(node.input), self._write_request(node))
        draft = self.drafts[stage]
        if isinstance(draft.grouping, SourceTasks):
            # Positions that an earlier run of this job has written are not read again.
            draft.grouping = replace(draft.grouping, done=frozenset(node.sink.positions_done()))
        return stage

    def _write_request(self, node: Write) -> StepRequest:
        executor: ExecutorKind = Threads(size=node.concurrency)
        if node.sink.supports_distributed_writes and not (
            node.sink.writes_in_threads and without_cpus(node.resources) == Resources()
        ):
            strategy = TaskPoolStrategy(node.concurrency)
            executor = worker_executor(strategy, node.resources, self._target.context)
        return StepRequest(
            name=node.name,
            step=WriteStep(name=node.name, sink=node.sink),
            executor=executor,
            slots=task_slots(node.resources),
            min_rows=node.sink.min_rows_per_write or 1,
            min_bytes=node.sink.min_bytes_per_write or 0,
            in_driver=not node.sink.supports_distributed_writes,
        )

    def _request(self, node: Node) -> StepRequest:
        """Return the step of a node that works row by row, with its requirements."""
        match node:
            case Mapped():
                executor, slots = function_executor(node.function, self._target.context)
                size = node.batch_size if isinstance(node, MapBatches) else None
                return StepRequest(
                    name=node.name,
                    step=_function_step(node),
                    executor=executor,
                    slots=slots,
                    keeps_rows=properties.keeps_rows(node),
                    min_rows=size if isinstance(size, int) else 1,
                    timeout_s=node.function.timeout_s,
                )
            case Project():
                step = ProjectStep(
                    name=node.name,
                    expressions=node.expressions,
                    dropped=node.dropped,
                    renamed=node.renamed,
                )
                executor, slots = self._expression_executor(node)
                return StepRequest(
                    name=node.name, step=step, executor=executor, slots=slots, keeps_rows=True
                )
            case FilterExpr():
                executor, slots = self._expression_executor(node)
                return StepRequest(
                    name=node.name,
                    step=FilterExprStep(name=node.name, predicate=node.predicate),
                    executor=executor,
                    slots=slots,
                )
            case RandomSample():
                return StepRequest(
                    name=node.name,
                    step=RandomSampleStep(
                        name=node.name, fraction=node.fraction, seed=self._seed(node.seed)
                    ),
                )
        raise AssertionError(f"{type(node).__name__} has no lowering")

    def _expression_executor(self, node: Project | FilterExpr) -> tuple[ExecutorKind, float]:
        functions = properties.functions_of(node)
        if not functions:
            return Threads(), 1.0
        resources = node.resources if isinstance(node, Project) else Resources()
        compute = node.compute if isinstance(node, Project) else None
        if compute is None and any(function.is_class for function in functions):
            compute = ActorPoolStrategy()
        executor = worker_executor(compute, resources, self._target.context)
        return executor, task_slots(resources, is_actor=isinstance(compute, ActorPoolStrategy))


def _cache_read(name: str, rows: Held | Datasource) -> StageDraft:
    if isinstance(rows, Held):
        return StageDraft(names=[name], grouping=SourceBlocks(blocks=rows.blocks))
    return StageDraft(
        names=[name],
        grouping=SourceTasks(payloads=rows.get_read_tasks(1)),
        head=read_payload,
        keeps_rows=True,
        whole_blocks=True,
        sealed=True,
    )


def _no_rows(schema: pa.Schema) -> list[pa.Table]:
    return [blocks.empty(schema)]


def _min_rows_per_task(tasks: list[ReadTask]) -> int | None:
    """Return the minimum number of rows of all tasks but the last; None if unknown."""
    counts = [task.num_rows for task in tasks]
    known = [count for count in counts if count is not None]
    if len(known) < len(counts) or not known:
        return None
    return min(known[:-1], default=sum(known))


def _function_step(node: Mapped) -> Step:
    match node:
        case MapRows():
            return MapRowsStep(function=node.function, name=node.name)
        case FlatMap():
            return FlatMapStep(function=node.function, name=node.name)
        case FilterRows():
            return FilterRowsStep(function=node.function, name=node.name)
        case MapBatches():
            return MapBatchesStep(
                function=node.function,
                name=node.name,
                batch_size=node.batch_size,
                batch_format=node.batch_format,
                zero_copy=node.zero_copy,
                keeps_row_count=node.keeps_row_count,
            )
    raise AssertionError(f"{type(node).__name__} has no step")
