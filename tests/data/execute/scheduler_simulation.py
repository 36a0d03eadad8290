"""Executions without a driver, for tests of the scheduler: tasks are functions of lists of rows,
and end in a random order.

`Simulation` does what the scheduler says and checks each instruction. `expected_blocks` computes
the same output the naive way, stage by stage. `random_stages` draws a tree of stages.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from syncline.data.execute import physical_plan as s
from syncline.data.execute.messages import (
    Abandoned,
    BlockInfo,
    Cancel,
    Deliver,
    Drop,
    Ended,
    Event,
    Fail,
    Failed,
    Finish,
    Instruction,
    Launch,
    Partitioned,
    Piece,
    Prepare,
    Prepared,
    Produced,
    Resume,
    Started,
    Taken,
    TaskId,
)
from syncline.data.execute.scheduler import Scheduler

Rows = list[Any]
Blocks = list[Rows]


@dataclass(frozen=True)
class Read:
    """A read task, or a held block: what it makes is known."""

    blocks: tuple[tuple[int, ...], ...]
    num_rows: int | None = None

    @property
    def size_bytes(self) -> int:
        return ROW_BYTES * sum(map(len, self.blocks))


ROW_BYTES = 10


def task_output(stage: s.Stage, number: int, ports: Sequence[Blocks], payload: Any) -> Blocks:
    """The blocks of a task; their bounds, and which rows are left out, depend on the rows and the
    task's number.
    """
    if isinstance(stage.grouping, s.SourceTasks):
        return [list(block) for block in payload.blocks]
    columns = [[row for block in port for row in block] for port in ports]
    if isinstance(stage.grouping, s.ZipInputs):
        rows: Rows = list(zip(*columns, strict=True))
    else:
        rows = [row for column in columns for row in column]
    if "filter" in stage.name:
        rows = [row for row in rows if hash(row) % 3]
    size = 1 + (number * 7 + len(stage.name)) % 5
    blocks = [rows[start : start + size] for start in range(0, len(rows), size)]
    return [*blocks, []] if "empty" in stage.name and number % 3 else blocks


def partition_of(row: Any, parts: int) -> int:
    return hash((7, row)) % parts


# -- the naive way


def expected_blocks(stages: Sequence[s.Stage], number: int | None = None) -> Blocks:
    """The output of a stage (the last by default), block by block."""
    number = len(stages) - 1 if number is None else number
    stage, grouping = stages[number], stages[number].grouping
    inputs = [expected_blocks(stages, each) for each in stage.inputs]

    def run(tasks: Sequence[Sequence[Blocks]]) -> Blocks:
        return [
            block
            for task, ports in enumerate(tasks)
            for block in task_output(stage, task, ports, None)
        ]

    match grouping:
        case s.SourceTasks():
            read = [each for at, each in enumerate(grouping.payloads) if at not in grouping.done]
            return [list(block) for each in read for block in each.blocks]
        case s.SourceBlocks():
            sources: Any = grouping.blocks
            return [list(each.blocks[0]) for each in sources]
        case s.BundleBlocks() | s.RebatchRows():
            return run([[task] for task in _collected(inputs[0], grouping)])
        case s.RepartitionRows():
            rows = _rows(inputs[0])
            bounds = [len(rows) * part // grouping.parts for part in range(grouping.parts + 1)]
            return run(
                [[[rows[start:stop]]] for start, stop in zip(bounds, bounds[1:], strict=False)]
                if inputs[0]
                else []
            )
        case s.LimitRows():
            return _first(inputs[0], grouping.rows)
        case s.UnionInputs():
            return [block for each in inputs for block in each]
        case s.ShuffleBlocks():
            random.Random(grouping.seed).shuffle(inputs[0])
            return inputs[0]
        case s.ZipInputs():
            cuts = sorted({cut for each in inputs for cut in _cuts(each)} | {0})
            tasks = [
                [[_rows(each)[start:stop]] for each in inputs]
                for start, stop in zip(cuts, cuts[1:], strict=False)
            ]
            return run(tasks or [inputs] if all(inputs) else tasks)
        case s.MixInputs():
            return _interleaved(inputs, grouping)
        case s.ExchangeRows():
            return run(_exchanged(inputs, grouping))
    raise AssertionError(f"unknown grouping {grouping!r}")


def _rows(blocks: Blocks) -> Rows:
    return [row for block in blocks for row in block]


def _cuts(blocks: Blocks) -> list[int]:
    return [sum(map(len, blocks[:count])) for count in range(1, len(blocks) + 1)]


def _collected(blocks: Blocks, grouping: s.BundleBlocks | s.RebatchRows) -> list[Blocks]:
    tasks: list[Blocks] = []
    current: Blocks = []
    for block in blocks:
        if isinstance(grouping, s.BundleBlocks):
            current.append(block)
            if len(_rows(current)) >= grouping.min_rows and _rows(current):
                tasks.append(current)
                current = []
        elif grouping.strict:
            for row in block:
                current.append([row])
                if len(current) == grouping.rows:
                    tasks.append(current)
                    current = []
        else:
            tasks += [
                [block[start : start + grouping.rows]]
                for start in range(0, len(block), grouping.rows)
            ]
    return [*tasks, current] if _rows(current) or (blocks and not tasks) else tasks


def _first(blocks: Blocks, rows: int) -> Blocks:
    taken: Blocks = []
    for block in blocks:
        if rows > 0:
            taken.append(block[:rows])
            rows -= len(block)
    return taken


def _interleaved(inputs: list[Blocks], grouping: s.MixInputs) -> Blocks:
    passed, positions, out = [0] * len(inputs), [0] * len(inputs), []
    live = set(range(len(inputs)))
    while live:
        turn = min(sorted(live), key=lambda port: passed[port] / grouping.weights[port])
        if positions[turn] == len(inputs[turn]):
            if grouping.until_shortest:
                break
            live.discard(turn)
            continue
        block = inputs[turn][positions[turn]]
        positions[turn] += 1
        passed[turn] += len(block)
        out.append(block)
    return out


def _exchanged(inputs: list[Blocks], grouping: s.ExchangeRows) -> list[list[Blocks]]:
    size = ROW_BYTES * sum(len(_rows(each)) for each in inputs)
    count = grouping.default_parts if grouping.parts is None else grouping.parts
    if not size or (grouping.parts is None and size <= grouping.direct_bytes) or count == 1:
        return [inputs]
    return [
        [[[row for row in _rows(each) if partition_of(row, count) == part]] for each in inputs]
        for part in range(count)
    ]


# -- the simulation


@dataclass
class Running:
    launch: Launch
    blocks: Blocks
    runs: bool = True


@dataclass(kw_only=True)
class Simulation:
    """One execution. `step` lets something happen; `run` goes on until the end."""

    stages: Sequence[s.Stage]
    slots: float = 2
    budget_bytes: int = 10_000
    seed: int = 0
    preserve_order: bool = True
    max_errored_blocks: int = 0
    start: Any = None
    consumer: float = 0.5  # how fast: the chance that it takes a block before another task goes on
    timed_out_calls: frozenset[TaskId] = frozenset()  # tasks that fail after their first block
    told_last: float = 0.7  # the chance that a task knows which block is its last
    block_bytes: int | None = None  # of every block; by rows if None

    delivered: list[tuple[Rows, Any]] = field(default_factory=list)
    launched: list[Launch] = field(default_factory=list)
    cancelled: list[TaskId] = field(default_factory=list)
    end: Finish | Fail | None = None
    most_held_bytes: int = 0
    most_running: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.scheduler = Scheduler(
            self.stages,
            preserve_order=self.preserve_order,
            max_errored_blocks=self.max_errored_blocks,
            start=self.start,
        )
        self.tasks: dict[TaskId, Running] = {}
        self.preparing: list[int] = []
        self.blocks: dict[int, Rows] = {}
        self.sizes: dict[int, int] = {}
        self.dropped: set[int] = set()
        self.untaken: list[int] = []
        self.number = 0
        uncounted = (
            s.SourceBlocks | s.RepartitionRows | s.ShuffleBlocks | s.ExchangeRows
        )  # (or not yet known here)
        self.counts_all = not any(isinstance(stage.grouping, uncounted) for stage in self.stages)

    def run(self) -> "Simulation":
        self.begin()
        while self.end is None:
            self.step()
        self.check_end()
        return self

    def begin(self) -> None:
        self.handle(Started(slots=self.slots, budget_bytes=self.budget_bytes))

    def check_end(self) -> None:
        assert not self.alive(), f"blocks {self.alive()} were never dropped"
        assert not self.tasks, f"tasks {list(self.tasks)} were neither ended nor cancelled"

    def alive(self) -> set[int]:
        return self.blocks.keys() - self.dropped

    @property
    def rows(self) -> Rows:
        return [row for rows, _ in self.delivered for row in rows]

    def step(self) -> None:
        """A task makes a block or ends, or the consumer takes one."""
        runs = [task for task in self.tasks.values() if task.runs]
        assert runs or self.preparing or self.untaken, (
            f"the execution is stuck: {self.scheduler.snapshot()}"
        )
        if self.untaken and (not (runs or self.preparing) or self.random.random() < self.consumer):
            self.untaken.pop(0)
            self.handle(Taken())
        elif self.preparing:
            self.handle(Prepared(stage=self.preparing.pop()))
        else:
            self.go_on(self.random.choice(runs))

    def go_on(self, task: Running) -> None:
        task_id = task.launch.task
        if task_id.kind == "sample":
            del self.tasks[task_id]
            self.handle(Ended(task=task_id))
        elif task_id.kind == "partition":
            del self.tasks[task_id]
            self.handle(self.partition(task))
        elif task_id in self.timed_out_calls:
            del self.tasks[task_id]
            self.handle(
                Failed(
                    task=task_id,
                    error=ZeroDivisionError(str(task_id)),
                    counts_as_errored_block=True,
                )
            )
        elif not task.blocks:
            del self.tasks[task_id]
            self.handle(Ended(task=task_id))
        else:
            rows = task.blocks.pop(0)
            is_last = not task.blocks and self.random.random() < self.told_last
            task.runs = False
            if is_last:
                del self.tasks[task_id]
            self.handle(Produced(task=task_id, info=self.new_block(rows), is_last=is_last))

    def partition(self, task: Running) -> Partitioned:
        rows = self.read(task.launch.ports[0][0])
        split = [
            [row for row in rows if partition_of(row, task.launch.parts) == part]
            for part in range(task.launch.parts)
        ]
        if self.random.random() < 0.5:  # one object, or one per partition
            info = [self.new_block([row for part in split for row in part])]
            cuts = [sum(map(len, split[:part])) for part in range(len(split) + 1)]
            pieces = [
                Piece(info[0].block, *bounds) if part else None
                for part, *bounds in zip(split, cuts, cuts[1:], strict=False)
            ]
        else:
            made = [self.new_block(part) if part else None for part in split]
            info = [each for each in made if each]
            pieces = [Piece(each.block, 0, each.rows) if each else None for each in made]
        return Partitioned(task=task.launch.task, blocks=tuple(info), parts=tuple(pieces))

    def new_block(self, rows: Rows) -> BlockInfo:
        self.number += 1
        self.blocks[self.number] = rows
        self.sizes[self.number] = (
            len(rows) * ROW_BYTES if self.block_bytes is None else self.block_bytes
        )
        return BlockInfo(self.number, len(rows), self.sizes[self.number])

    def handle(self, event: Event) -> list[Instruction]:
        idle_before = not any(task.runs for task in self.tasks.values()) and not self.preparing
        instructions = self.scheduler.handle(event)
        went_on = 0
        for instruction in instructions:
            assert self.end is None, f"{instruction} comes after the end"
            went_on += isinstance(instruction, Resume) or (
                isinstance(instruction, Launch) and instruction.task.kind == "task"
            )
            self.do(instruction)
        self.check(went_on, idle_before)
        return instructions

    def check(self, went_on: int, idle_before: bool) -> None:
        counts = self.scheduler.snapshot()
        runs = sum(task.runs for task in self.tasks.values())
        self.most_running = max(self.most_running, runs)
        if self.end is not None:
            return
        assert sum(stage.running for stage in counts.stages) == runs
        self.most_held_bytes = max(self.most_held_bytes, counts.held_bytes)
        if self.counts_all:
            assert counts.held_bytes == sum(self.sizes[block] for block in self.alive())
        if counts.held_bytes + counts.expected_bytes > self.budget_bytes and went_on:
            needed = went_on == 1 and idle_before and not self.untaken
            assert needed, "a task went on beyond the budget without need"

    def do(self, instruction: Instruction) -> None:
        match instruction:
            case Launch():
                self.launch(instruction)
            case Resume(task=task_id):
                assert not self.tasks[task_id].runs, f"{task_id} runs already"
                self.tasks[task_id].runs = True
            case Prepare(stage=stage):
                self.preparing.append(stage)
            case Deliver():
                self.delivered.append((self.read(instruction.piece), instruction.point))
                self.untaken.append(instruction.piece.block)
            case Drop(block=block):
                self.know_held(block)
                assert block in self.alive(), f"block {block} does not exist (any more)"
                self.dropped.add(block)
            case Cancel(task=task_id):
                del self.tasks[task_id]
                self.cancelled.append(task_id)
            case Finish() | Fail():
                self.end = instruction

    def launch(self, launch: Launch) -> None:
        assert launch.task not in {each.task for each in self.launched}, (
            f"{launch.task} is started twice"
        )
        used = sum(self.slots_of(each) for each, task in self.tasks.items() if task.runs)
        needed = self.slots_of(launch.task)
        fits = used + (min(needed, self.slots) if self.slots else needed) <= self.slots
        assert fits != launch.beyond_slots, f"{used} of {self.slots} slots are used, but {launch}"
        self.launched.append(launch)
        stage = self.stages[launch.task.stage]
        ports = [[self.read(piece) for piece in port] for port in launch.ports]
        blocks = (
            []
            if launch.task.kind != "task"
            else task_output(stage, launch.task.number, ports, launch.payload)
        )
        self.tasks[launch.task] = Running(launch, skipped(blocks, launch.skip_rows))

    def slots_of(self, task: TaskId) -> float:
        return self.stages[task.stage].slots if task.kind == "task" else 1.0

    def read(self, piece: Piece) -> Rows:
        self.know_held(piece.block)
        assert piece.block in self.alive(), f"{piece} is read but does not exist (any more)"
        rows = self.blocks[piece.block]
        assert 0 <= piece.start <= piece.stop <= len(rows), (
            f"{piece} is not within {len(rows)} rows"
        )
        return rows[piece.start : piece.stop]

    def know_held(self, block: int) -> None:
        if block < 0 and block not in self.blocks:
            held: Any = s.held_blocks(self.stages)[block]
            self.blocks[block] = list(held.blocks[0])
            self.sizes[block] = held.size_bytes

    def abandon(self) -> None:
        self.handle(Abandoned())


def skipped(blocks: Blocks, rows: int) -> Blocks:
    """What is left of blocks without their first rows."""
    left = []
    for block in blocks:
        if rows < len(block) or not rows:
            left.append(block[rows:])
        rows = max(0, rows - len(block))
    return left


# -- random trees of stages


def reads(
    draw: random.Random, rows: int, *, first: int = 0, known: bool = False
) -> tuple[Read, ...]:
    """Read tasks that make these rows in order, some of them nothing."""
    tasks = []
    stop = first + rows
    while first < stop:
        blocks = []
        for _ in range(draw.randint(0, 4)):
            size = min(stop - first, draw.randint(0, 5))
            blocks.append(tuple(range(first, first + size)))
            first += size
        tasks.append(Read(tuple(blocks), sum(map(len, blocks)) if known else None))
    return tuple(tasks)


class StageDrawer:
    """Draws stages; each one that is asked for is the output of those before it."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.stages: list[s.Stage] = []

    def put(
        self, grouping: s.Grouping, *inputs: int, name: str = "", keeps_rows: bool = False
    ) -> int:
        executor: Any = self.draw.choice(
            [
                s.Threads(),
                s.Workers(size=2),
                s.Actors(min_size=1, max_size=1, initial_size=1, in_flight=2),
            ]
        )
        slots = self.draw.choice([1.0, 1.0, 0.5, 3.0])
        self.stages.append(
            s.Stage(
                name=name,
                inputs=inputs,
                grouping=grouping,
                executor=executor,
                slots=slots,
                keeps_rows=keeps_rows,
            )
        )
        return len(self.stages) - 1

    def source(self, rows: int | None = None) -> int:
        rows = self.draw.choice([0, 1, 12, 30]) if rows is None else rows
        first = 1000 * len(self.stages)
        if self.draw.random() < 0.3:
            bounds = sorted([0, rows, *(self.draw.randint(0, rows) for _ in range(4))])
            blocks: Any = [
                Read((tuple(range(first + start, first + stop)),), stop - start)
                for start, stop in zip(bounds, bounds[1:], strict=False)
            ]
            return self.put(s.SourceBlocks(blocks=blocks))
        known = self.draw.random() < 0.5
        return self.put(
            s.SourceTasks(payloads=reads(self.draw, rows, first=first, known=known)),
            keeps_rows=known,
        )

    def tree(self, depth: int) -> int:
        """A stage with so many below it at most."""
        if depth == 0:
            return self.source()
        kind = self.draw.choice(["one"] * 6 + ["chained", "interleaved", "aligned", "join"])
        if kind == "one":
            return self.one_input(self.tree(depth - 1))
        if kind == "aligned":
            first = self.tree(depth - 1)
            rows = len(_rows(expected_blocks(self.stages, first)))
            second = self.put(s.BundleBlocks(), self.source(rows), name="map", keeps_rows=True)
            return self.put(s.ZipInputs(), first, second, name="zip", keeps_rows=True)
        inputs = [self.tree(self.draw.randrange(depth)) for _ in range(2)]
        if kind == "chained":
            return self.put(s.UnionInputs(), *inputs)
        if kind == "interleaved":
            return self.put(
                s.MixInputs(weights=(0.7, 0.3), until_shortest=self.draw.random() < 0.5), *inputs
            )
        return self.put(self.exchange(2), *inputs, name="join")

    def one_input(self, below: int) -> int:
        draw = self.draw
        name = draw.choice(["map", "map", "filter", "map empty"])
        keeps_rows = "map" in name
        match draw.choice(["bundled"] * 3 + ["cut", "evenly", "first", "shuffled", "exchanged"]):
            case "bundled":
                return self.put(
                    s.BundleBlocks(min_rows=draw.choice([1, 1, 4, 9])),
                    below,
                    name=name,
                    keeps_rows=keeps_rows,
                )
            case "cut":
                return self.put(
                    s.RebatchRows(rows=draw.randint(1, 6), strict=draw.random() < 0.5),
                    below,
                    name=name,
                    keeps_rows=keeps_rows,
                )
            case "evenly":
                return self.put(
                    s.RepartitionRows(parts=draw.randint(1, 5)),
                    below,
                    name=name,
                    keeps_rows=keeps_rows,
                )
            case "first":
                return self.put(s.LimitRows(rows=draw.choice([0, 1, 7, 20, 100])), below)
            case "shuffled":
                return self.put(s.ShuffleBlocks(seed=draw.randrange(9)), below)
            case _:
                return self.put(self.exchange(1), below, name=name)

    def exchange(self, ports: int) -> s.ExchangeRows:
        draw = self.draw
        sample: Any = draw.choice([None, max])
        return s.ExchangeRows(
            partition=(max,) * ports,
            parts=draw.choice([None, None, 1, 4]),
            default_parts=3,
            direct_bytes=draw.choice([0, 100, 10_000]),
            sample=sample,
            prepare=sample,
            executor=s.Threads(size=draw.choice([None, 1])),
        )


def random_stages(seed: int) -> list[s.Stage]:
    drawer = StageDrawer(random.Random(seed))
    drawer.tree(drawer.draw.randint(0, 4))
    return drawer.stages
