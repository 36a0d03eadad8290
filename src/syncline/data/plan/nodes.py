"""The plan of a dataset: what its rows are computed from, as a tree of immutable nodes.

Covered: every node, its inputs and its name. Not covered: what to make of them (`rules`,
`lowering`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import pyarrow as pa

from syncline.data.columnar.aggregate import AggregateFn
from syncline.data.columnar.block import BatchFormat
from syncline.data.columnar.expressions import Expr
from syncline.data.io.sinks.datasink import Datasink
from syncline.data.io.sources.datasource import Datasource
from syncline.data.plan.compute import ComputeStrategy, Resources, TaskPoolStrategy

if TYPE_CHECKING:
    from syncline.core.refs import ObjectRef

OnError: TypeAlias = Literal["raise", "skip"]
T = TypeVar("T")


@dataclass(frozen=True)
class RandomSeedConfig:
    """A seed, and whether each execution draws another order from it."""

    seed: int | None = None
    """The seed; None for one that the execution draws."""
    reseed_after_execution: bool = True
    """Whether every epoch has an order of its own."""


@dataclass(frozen=True, kw_only=True)
class PlacedSeed:
    """Set by `seeds.placed`: a seed that is not fixed, and where in the plan it stands, so that
    rules may move its node.
    """

    seed: RandomSeedConfig | None
    place: int


Seed: TypeAlias = int | RandomSeedConfig | PlacedSeed | None
"""An int gives the same order in every execution; None another one in each."""


@dataclass(frozen=True, kw_only=True, eq=False)
class UserFunction:
    """A function or class of the program's, and how to call it."""

    function: Callable[..., Any]
    """The function, or the class whose instances are called."""
    args: Sequence[Any] = ()
    """Positional arguments after the row or batch."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments."""
    constructor_args: Sequence[Any] = ()
    """Positional arguments of the class."""
    constructor_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the class."""
    compute: ComputeStrategy = field(default_factory=TaskPoolStrategy)
    """An `ActorPoolStrategy` for a class."""
    resources: Resources = field(default_factory=Resources)
    """What each task or actor holds."""
    resources_fn: Callable[[], Mapping[str, Any]] | None = None
    """Options for `remote` that are asked for before each worker starts (`ray_remote_args_fn`)."""
    timeout_s: float | None = None
    """Seconds that one call (of a row or batch) may take; None for no limit."""
    on_error: OnError = "raise"
    """What an error of the function, or its timeout, means: the end of the execution, or that its
    rows are left out and counted.
    """

    @property
    def is_class(self) -> bool:
        """Whether it has to be constructed first."""
        return isinstance(self.function, type)

    @property
    def name(self) -> str:
        """For people: the function's or class's own."""
        function = getattr(self.function, "func", self.function)  # of a functools.partial
        return getattr(function, "__name__", None) or type(function).__name__


@dataclass(frozen=True, kw_only=True, eq=False)
class HeldBlock:
    """A block that exists already."""

    value: ObjectRef[pa.Table] | pa.Table
    """The rows, or a reference to them."""
    num_rows: int
    size_bytes: int
    schema: pa.Schema
    input_files: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Node:
    """What the rows are made of. Nodes are compared by identity: two plans that were built alike
    are two plans.
    """

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes whose rows this one works on, in order."""
        return ()

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        """The same node on other inputs, as many as it has."""
        assert not inputs, f"{self.name} has no inputs"
        return self

    @property
    def name(self) -> str:
        """The operator as people see it in `explain()`, `stats()` and progress."""
        return type(self).__name__


@dataclass(frozen=True, kw_only=True, eq=False)
class OneInput(Node):
    """Base of the nodes with one input."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        (changed,) = inputs
        return self if changed is self.input else dataclasses.replace(self, input=changed)


# -- sources


@dataclass(frozen=True, kw_only=True, eq=False)
class Read(Node):
    """Rows of a source."""

    source: Datasource
    parallelism: int | None = None
    """Read tasks that are asked for (`override_num_blocks`); None lets the executor choose."""
    concurrency: int | None = None
    """The most read tasks at once."""
    resources: Resources = field(default_factory=Resources)
    columns: tuple[str, ...] | None = None
    """Set by the rules: the columns that are left of all, in the order in which they are wanted."""
    task_order: RandomizeBlocks | None = None
    """Set by the rules: the node whose seed puts the read tasks into random order; its input means
    nothing here.
    """

    @property
    def name(self) -> str:
        return f"Read{self.source.get_name()}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Held(Node):
    """Blocks that exist already: materialized datasets, and those made of what the program has in
    memory.
    """

    blocks: tuple[HeldBlock, ...]

    @property
    def name(self) -> str:
        return "InputData"

    @cached_property
    def num_rows(self) -> int:
        """Rows of all blocks."""
        return sum(block.num_rows for block in self.blocks)


# -- row by row, batch by batch


@dataclass(frozen=True, kw_only=True, eq=False)
class Mapped(OneInput):
    """Base of the nodes that call a user function."""

    function: UserFunction


@dataclass(frozen=True, kw_only=True, eq=False)
class MapRows(Mapped):
    """`map`: a dict for each row."""

    @property
    def name(self) -> str:
        return f"Map({self.function.name})"


@dataclass(frozen=True, kw_only=True, eq=False)
class FlatMap(Mapped):
    """`flat_map`: any number of dicts for each row."""

    @property
    def name(self) -> str:
        return f"FlatMap({self.function.name})"


@dataclass(frozen=True, kw_only=True, eq=False)
class FilterRows(Mapped):
    """`filter(fn)`: the rows for which a function is true."""

    @property
    def name(self) -> str:
        return f"Filter({self.function.name})"


@dataclass(frozen=True, kw_only=True, eq=False)
class MapBatches(Mapped):
    """`map_batches`."""

    batch_size: int | Literal["auto"] | None = None
    """Rows of a batch; None for blocks as they come."""
    batch_format: BatchFormat = "default"
    zero_copy: bool = True
    """Whether batches are read-only views of blocks; False gives writable copies."""
    keeps_row_count: bool = False
    """Whether the program promised as many rows as there were (`udf_modifying_row_count=False`)."""

    @property
    def name(self) -> str:
        return f"MapBatches({self.function.name})"


@dataclass(frozen=True, kw_only=True, eq=False)
class Project(OneInput):
    """Columns computed from columns: `select_columns`, `drop_columns`, `rename_columns`,
    `with_column(s)` are all this.
    """

    expressions: tuple[Expr, ...] = ()
    """What `expressions.project` takes: `star()` stands for all columns of the input."""
    dropped: tuple[str, ...] = ()
    """Columns of the input that are left out first (`drop_columns`, where the others are not known
    yet).
    """
    renamed: Mapping[str, str] | None = None
    """New names by old name (`rename_columns`); the other columns and the order stay. Alone: not
    with expressions or dropped.
    """
    resources: Resources = field(default_factory=Resources)
    compute: ComputeStrategy | None = None
    """For expressions with user functions: an `ActorPoolStrategy` where one is a class."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FilterExpr(OneInput):
    """`filter(expr=)`: the rows for which a predicate is true."""

    predicate: Expr

    @property
    def name(self) -> str:
        return "Filter"


@dataclass(frozen=True, kw_only=True, eq=False)
class RandomSample(OneInput):
    """`random_sample`: each row with this probability."""

    fraction: float
    seed: Seed = None


# -- in order, without looking into rows


@dataclass(frozen=True, kw_only=True, eq=False)
class Limit(OneInput):
    """The first rows."""

    limit: int

    @property
    def name(self) -> str:
        return f"Limit({self.limit})"


@dataclass(frozen=True, kw_only=True, eq=False)
class Repartition(OneInput):
    """`repartition` without keys: other blocks, the same rows in the same order (with `shuffle`:
    rows in random order).
    """

    num_blocks: int | None = None
    target_num_rows: int | None = None
    strict: bool = False
    """With `target_num_rows`: blocks have exactly so many rows, but the last; else at most so
    many.
    """


@dataclass(frozen=True, kw_only=True, eq=False)
class RandomizeBlocks(OneInput):
    """`randomize_block_order`."""

    seed: Seed = None

    @property
    def name(self) -> str:
        return "RandomizeBlockOrder"


# -- all to all


@dataclass(frozen=True, kw_only=True, eq=False)
class RandomShuffle(OneInput):
    """Rows in random order."""

    seed: Seed = None
    num_blocks: int | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Sort(OneInput):
    """Rows in order of keys."""

    keys: tuple[str, ...]
    descending: tuple[bool, ...]
    boundaries: tuple[Any, ...] | None = None
    """Values of the first key at which blocks begin."""


@dataclass(frozen=True, kw_only=True, eq=False)
class HashPartition(OneInput):
    """`repartition(keys=)`: rows with equal keys in one block."""

    keys: tuple[str, ...]
    num_blocks: int | None = None
    sort: bool = False
    """Whether the rows of a block are sorted by the keys."""

    @property
    def name(self) -> str:
        return "Repartition"


@dataclass(frozen=True, kw_only=True, eq=False)
class Aggregate(OneInput):
    """One row per group (without keys: one row)."""

    keys: tuple[str, ...]
    aggregates: tuple[AggregateFn, ...]
    num_blocks: int | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class MapGroups(Mapped):
    """`groupby(...).map_groups(fn)`."""

    keys: tuple[str, ...]
    batch_format: BatchFormat = "default"
    zero_copy: bool = True
    num_blocks: int | None = None

    @property
    def name(self) -> str:
        return f"MapGroups({self.function.name})"


# -- several inputs


@dataclass(frozen=True, kw_only=True, eq=False)
class ManyInputs(Node):
    """Base of the nodes with several inputs."""

    parts: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        same = all(new is old for new, old in zip(inputs, self.parts, strict=True))
        return self if same else dataclasses.replace(self, parts=tuple(inputs))


@dataclass(frozen=True, kw_only=True, eq=False)
class Join(ManyInputs):
    """Two inputs, matched by keys."""

    join_type: str
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    left_suffix: str | None = None
    right_suffix: str | None = None
    num_blocks: int | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Union(ManyInputs):
    """The rows of each input, one input after the other."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Zip(ManyInputs):
    """The columns of each input, side by side."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Mix(ManyInputs):
    """Rows of each input in turns, by weight."""

    weights: tuple[float, ...]
    stop_when: Literal["shortest", "longest"] = "shortest"


# -- ends


@dataclass(frozen=True, kw_only=True, eq=False)
class Write(OneInput):
    """Rows into a sink. Its rows are one per write task: `return`, a pickled `WriteReturn`,
    `num_rows` and `size_bytes`.
    """

    sink: Datasink[Any]
    concurrency: int | None = None
    resources: Resources = field(default_factory=Resources)

    @property
    def name(self) -> str:
        return f"Write{self.sink.get_name()}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Cache(OneInput):
    """`cache()`: the first complete execution keeps its rows, later ones read them."""

    path: str | None = None
    """A directory that outlives the program; None for as long as the program runs."""
    slot: Any = None
    """Shared by all plans that contain this node: what was kept so far (`data.cache`)."""


def walk(node: Node) -> list[Node]:
    """Every node, inputs before those that use them; a node that is used twice comes once."""
    seen: set[int] = set()
    found: list[Node] = []
    # Not recursive: loops of programs make deep plans.
    waiting: list[tuple[Node, bool]] = [(node, False)]
    while waiting:
        current, inputs_done = waiting.pop()
        if inputs_done:
            found.append(current)
        elif id(current) not in seen:
            seen.add(id(current))
            waiting.append((current, True))
            waiting.extend((each, False) for each in reversed(current.inputs))
    return found


def rewritten(node: Node, change: Callable[[Node, Node], Node]) -> Node:
    """The plan with `change(node, original)` of every node, inputs before those that use them;
    `node` has the changed inputs already.
    """
    done: dict[int, Node] = {}
    for original in walk(node):
        done[id(original)] = change(
            original.with_inputs([done[id(each)] for each in original.inputs]), original
        )
    return done[id(node)]


class Rebuilt(NamedTuple, Generic[T]):
    """What takes the place of a node."""

    build: Callable[[list[Node]], Node]
    """Makes it of the rewritten parts."""
    parts: Sequence[tuple[Node, T]] = ()
    """Nodes that have to be rewritten first, each with what is said to it."""


def rewritten_from_above(node: Node, said: T, visit: Callable[[Node, T], Rebuilt[T]]) -> Node:
    """The plan that `visit(node, said)` makes, where each node says something to those below it.
    Not recursive, as `walk` is not.
    """
    under_way: list[tuple[Rebuilt[T], list[Node]]] = [(visit(node, said), [])]
    while True:
        (build, parts), done = under_way[-1]
        if len(done) < len(parts):
            under_way.append((visit(*parts[len(done)]), []))
            continue
        made = build(done)
        under_way.pop()
        if not under_way:
            return made
        under_way[-1][1].append(made)
