"""From a plan to the stages that are executed.

Nodes that work row by row become steps in the tasks of the stage before them (`fusion`); all-to-all
nodes get stages of their own (`exchanges`). A node that is used twice is computed twice.

`map_batches` with a number of rows: within a task, batches are cut across its blocks. If the tasks
before it are known to have fewer rows than a batch, they are not used; blocks are then bundled
until there are enough.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from syncline.data.context import DataContext
from syncline.data.execute.cache import CacheUses, FilesKeeper, Origin
from syncline.data.execute.chain import Step
from syncline.data.execute.shape import Shape
from syncline.data.execute.stages import (
    Aligned,
    Bundled,
    Chained,
    Cut,
    CutEvenly,
    First,
    Interleaved,
    Keeping,
    Lane,
    Listed,
    Passed,
    Shuffled,
    Stage,
    Threads,
    Workers,
)
from syncline.data.execute.steps.batches import MapBatchesStep
from syncline.data.execute.steps.columns import FilterExprStep, ProjectStep, RandomSampleStep
from syncline.data.execute.steps.heads import BlocksHead, ConcatHead, ReadHead, ZipHead
from syncline.data.execute.steps.rows import FilterRowsStep, FlatMapStep, MapRowsStep
from syncline.data.execute.steps.write import WriteStep
from syncline.data.io.sources.datasource import Datasource
from syncline.data.plan import properties, reads, seeds
from syncline.data.plan.compute import ActorPoolStrategy, Resources, TaskPoolStrategy
from syncline.data.plan.exchanges import exchange, first_work
from syncline.data.plan.fusion import Draft, Work, function_lane, lane_of, needs, slots_of
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


def lower(
    node: Node,
    context: DataContext,
    shape: Shape,
    *,
    seed: int,
    epoch: int,
    caches: CacheUses | None = None,
) -> tuple[Stage, ...]:
    """The stages of one execution, inputs before those that read them; the last one's output is the
    plan's.

    Args:
        node: What `rules.optimize` made, or any plan. context: The dataset's; the stages keep it.
        shape: What the stages are laid out for. With the same shape, seed and epoch, the same plan
        on the same input has the same stages. seed: What nodes without a seed of their own draw
        from. epoch: Number of the pass. caches: What to do about its caches; None computes their
        inputs.
    """
    lowering = _Lowering(_Layout.of(context, shape, seed, epoch), caches or CacheUses())
    lowering.lower(seeds.placed(node))
    return lowering.stages()


class _Layout(NamedTuple):
    """What nodes are lowered for: that of the execution, or below a cache that of the execution
    which fills it first.
    """

    context: DataContext
    shape: Shape
    seed: int
    epoch: int

    @classmethod
    def of(cls, context: DataContext, shape: Shape, seed: int, epoch: int) -> _Layout:
        if (context._execution_idx, context._execution_seed) != (epoch, seed):
            context = context.copy()
            context._execution_idx, context._execution_seed = epoch, seed
        return cls(context, shape, seed, epoch)


class _Lowering:
    """The stages so far. Each method puts a node's at the end, after those of its inputs, and
    returns the number of the last one.
    """

    def __init__(self, layout: _Layout, caches: CacheUses) -> None:
        self.drafts: list[Draft] = []
        self._layout = layout
        self._layouts: list[_Layout] = []  # of each draft
        self._caches = caches

    def stages(self) -> tuple[Stage, ...]:
        """The finished stages."""
        begins_small = [True] * len(self.drafts)
        for number in reversed(range(len(self.drafts))):
            draft = self.drafts[number]
            for each in draft.inputs:
                # The blocks of a cache are the same whoever reads them.
                begins_small[each] = isinstance(draft.grouping, Keeping) or (
                    begins_small[number] and not draft.gathers
                )
        return tuple(
            draft.stage(
                layout.context, layout.shape.block_bytes(layout.context), begins_small=small
            )
            for draft, layout, small in zip(self.drafts, self._layouts, begins_small, strict=True)
        )

    @property
    def _context(self) -> DataContext:
        return self._layout.context

    @property
    def _shape(self) -> Shape:
        return self._layout.shape

    def lower(self, node: Node) -> int:
        """Any node."""
        match node:
            case Read():
                return self._read(node)
            case Held():
                return self._add(Draft(names=[node.name], grouping=Passed(blocks=node.blocks)))
            case Cache():
                return self._cached(node)
            case Limit():
                return self._limited(node)
            case Repartition():
                return self._repartitioned(node)
            case RandomShuffle() | Sort() | Aggregate() | HashPartition() | MapGroups() | Join():
                return self._exchanged(node)
            case Write():
                return self._written(node)
            case RandomizeBlocks():
                grouping = Shuffled(seed=self._drawn(node.seed))
                return self._add(
                    Draft(names=[node.name], inputs=self._inputs(node), grouping=grouping)
                )
            case Union():
                return self._add(
                    Draft(names=[node.name], inputs=self._inputs(node), grouping=Chained())
                )
            case Mix():
                mixed = Interleaved(
                    weights=node.weights, until_shortest=node.stop_when == "shortest"
                )
                return self._add(
                    Draft(names=[node.name], inputs=self._inputs(node), grouping=mixed)
                )
            case Zip():
                return self._add(
                    Draft(
                        names=[node.name],
                        inputs=self._inputs(node),
                        grouping=Aligned(),
                        head=ZipHead(),
                    )
                )
            case _:
                return self._row_by_row(node)

    def _add(self, draft: Draft) -> int:
        self.drafts.append(draft)
        self._layouts.append(self._layout)
        return len(self.drafts) - 1

    def _inputs(self, node: Node) -> tuple[int, ...]:
        return tuple(self.lower(each) for each in node.inputs)

    def _drawn(self, seed: Seed) -> int:
        return seeds.resolved(seed, execution_seed=self._layout.seed, epoch=self._layout.epoch)

    # -- sources

    def _read(self, node: Read, limit: int | None = None) -> int:
        tasks = reads.read_tasks(
            node,
            limit,
            self._context,
            self._shape,
            seed=self._layout.seed,
            epoch=self._layout.epoch,
        )
        lane: Lane = Threads(size=node.concurrency)
        if node.source.supports_distributed_reads and not (
            node.source.reads_in_threads and needs(node.resources) == Resources()
        ):
            lane = Workers(resources=node.resources, size=node.concurrency)
        return self._add(
            Draft(
                names=[node.name],
                grouping=Listed(payloads=tasks),
                head=ReadHead(),
                lane=lane,
                slots=slots_of(node.resources),
                in_program=not node.source.supports_distributed_reads,
                keeps_rows=True,
                rows_per_task=reads.rows_of_each(tasks),
                counted_blocks=node.parallelism is not None,
            )
        )

    def _cached(self, node: Cache) -> int:
        """Where kept rows take the place of the input, and where they are kept.

        Nothing that comes after is done in the same tasks: it gets the same blocks whether they are
        kept already or not.
        """
        outer = self._layout
        use = self._caches.of(node, Origin(seed=outer.seed, shape=outer.shape))
        if use.kept is not None:
            return self._add(_reading(node.name, use.kept.rows))
        self._layout = _Layout.of(outer.context, use.origin.shape, use.origin.seed, 0)
        below = self.lower(node.input)
        keeper = self._caches.keeper(use, outer.context)
        if node.path is not None:
            steps: list[Step] = [keeper.step("Keep")] if isinstance(keeper, FilesKeeper) else []
            files = Draft(
                names=["Keep"],
                inputs=(below,),
                grouping=Bundled(),
                head=ConcatHead(),
                steps=steps,
                keeps_rows=True,
                whole_blocks=True,  # a file for each
            )
            below = self._add(files)
        self._layout = outer
        return self._add(Draft(names=[node.name], inputs=(below,), grouping=Keeping(keeper=keeper)))

    # -- in order

    def _limited(self, node: Limit) -> int:
        if not isinstance(node.input, Read):
            return self._first(node, self.lower(node.input))
        stage = self._read(node.input, node.limit)
        draft = self.drafts[stage]
        if draft.rows_per_task is None:
            return self._first(node, stage)
        # The tasks are cut to the limit exactly.
        draft.names.append(node.name)
        return stage

    def _first(self, node: Limit, below: int) -> int:
        return self._add(Draft(names=[node.name], inputs=(below,), grouping=First(rows=node.limit)))

    def _repartitioned(self, node: Repartition) -> int:
        grouping: Cut | CutEvenly
        if node.target_num_rows is not None:
            grouping = Cut(rows=node.target_num_rows, strict=node.strict)
        else:
            assert node.num_blocks is not None, "a repartition has a number of blocks or of rows"
            grouping = CutEvenly(parts=node.num_blocks)
        rows = node.target_num_rows if node.strict else None
        draft = Draft(
            names=[node.name],
            inputs=self._inputs(node),
            grouping=grouping,
            head=ConcatHead(),
            keeps_rows=True,
            whole_blocks=True,
            rows_per_task=rows,
        )
        return self._add(draft)

    def _exchanged(
        self, node: RandomShuffle | Sort | Aggregate | HashPartition | MapGroups | Join
    ) -> int:
        inputs = self._inputs(node)
        work = first_work(node)
        if work is not None:
            inputs = (self._worked(inputs[0], work),)
        seed = self._drawn(node.seed) if isinstance(node, RandomShuffle) else 0
        return self._add(exchange(node, inputs, seed, self._context, self._shape))

    # -- row by row

    def _row_by_row(self, node: Node) -> int:
        """A node that works row by row, and those below it: not recursive, since loops of programs
        make long rows of them.
        """
        nodes: list[Node] = []
        while isinstance(node, Project | FilterExpr | RandomSample) or (
            isinstance(node, Mapped) and not isinstance(node, MapGroups)
        ):
            nodes.append(node)
            (node,) = node.inputs
        stage = self.lower(node)
        for each in reversed(nodes):
            stage = self._worked(stage, self._work(each))
        return stage

    def _worked(self, below: int, work: Work) -> int:
        """The work in the tasks of stage `below`, which nothing else reads, or in tasks of its
        own.
        """
        if self.drafts[below].take(work):
            return below
        grouping = Bundled(min_rows=work.min_rows)
        draft = Draft(
            names=[],
            inputs=(below,),
            grouping=grouping,
            head=BlocksHead(),
            keeps_rows=True,
            lane=work.lane,
            slots=work.slots,
        )
        draft.add(work)
        return self._add(draft)

    def _written(self, node: Write) -> int:
        below = self.lower(node.input)
        stage = self._worked(below, self._writing(node))
        draft = self.drafts[stage]
        if isinstance(draft.grouping, Listed):
            # What an earlier run of this job has written is not even read.
            draft.grouping = replace(draft.grouping, done=frozenset(node.sink.positions_done()))
        return stage

    def _writing(self, node: Write) -> Work:
        lane: Lane = Threads(size=node.concurrency)
        if node.sink.supports_distributed_writes and not (
            node.sink.writes_in_threads and needs(node.resources) == Resources()
        ):
            lane = lane_of(TaskPoolStrategy(node.concurrency), node.resources, self._context)
        return Work(
            name=node.name,
            step=WriteStep(name=node.name, sink=node.sink),
            lane=lane,
            slots=slots_of(node.resources),
            min_rows=node.sink.min_rows_per_write or 1,
            in_program=not node.sink.supports_distributed_writes,
        )

    def _work(self, node: Node) -> Work:
        """What a node that works row by row wants of tasks."""
        match node:
            case Mapped():
                lane, slots = function_lane(node.function, self._context)
                size = (
                    node.batch_size
                    if isinstance(node, MapBatches) and isinstance(node.batch_size, int)
                    else 1
                )
                return Work(
                    name=node.name,
                    step=_function_step(node),
                    lane=lane,
                    slots=slots,
                    keeps_rows=properties.keeps_rows(node),
                    min_rows=size,
                    timeout_s=node.function.timeout_s,
                )
            case Project():
                step = ProjectStep(
                    name=node.name,
                    expressions=node.expressions,
                    dropped=node.dropped,
                    renamed=node.renamed,
                )
                lane, slots = self._expression_lane(node)
                return Work(name=node.name, step=step, lane=lane, slots=slots, keeps_rows=True)
            case FilterExpr():
                lane, slots = self._expression_lane(node)
                return Work(
                    name=node.name,
                    step=FilterExprStep(name=node.name, predicate=node.predicate),
                    lane=lane,
                    slots=slots,
                )
            case RandomSample():
                return Work(
                    name=node.name,
                    step=RandomSampleStep(
                        name=node.name, fraction=node.fraction, seed=self._drawn(node.seed)
                    ),
                )
        raise AssertionError(f"{type(node).__name__} has no lowering")

    def _expression_lane(self, node: Project | FilterExpr) -> tuple[Lane, float]:
        functions = properties.functions_of(node)
        if not functions:
            return Threads(), 1.0
        resources = node.resources if isinstance(node, Project) else Resources()
        compute = node.compute if isinstance(node, Project) else None
        if compute is None and any(function.is_class for function in functions):
            compute = ActorPoolStrategy()
        lane = lane_of(compute, resources, self._context)
        return lane, slots_of(resources, is_actor=isinstance(compute, ActorPoolStrategy))


def _reading(name: str, rows: Held | Datasource) -> Draft:
    """The stage that reads what a cache has kept."""
    if isinstance(rows, Held):
        return Draft(names=[name], grouping=Passed(blocks=rows.blocks))
    tasks = rows.get_read_tasks(1)
    return Draft(
        names=[name],
        grouping=Listed(payloads=tasks),
        head=ReadHead(),
        keeps_rows=True,
        whole_blocks=True,
        sealed=True,
    )


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
