"""The logical plan of a dataset: a tree of immutable nodes.

Covered: all nodes, and traversal and rewriting of plans. Not covered: optimizing (`rules`) and
lowering to stages (`lowering`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeAlias, TypeVar

import pyarrow as pa

from syncline.data.columnar.aggregate import AggregateFn
from syncline.data.columnar.block import BatchFormat
from syncline.data.columnar.expressions import Expr
from syncline.data.columnar.kernels.join import JoinType
from syncline.data.io.sinks.datasink import Datasink
from syncline.data.io.sources.datasource import Datasource
from syncline.data.plan.compute import ComputeStrategy, Resources, TaskPoolStrategy
from syncline.records import dataclass

if TYPE_CHECKING:
    from syncline.core.refs import ObjectRef

OnError: TypeAlias = Literal["raise", "skip"]
T = TypeVar("T")


@dataclass(frozen=True)
class RandomSeedConfig:
    """A seed that may be derived again for each execution."""

    seed: int | None = None
    """The seed; None for one that the execution draws."""
    reseed_after_execution: bool = True
    """True to use a different random order in each execution (epoch)."""


@dataclass(frozen=True, kw_only=True)
class IndexedSeed:
    """A seed that is not fixed, with the index of its node in the plan. `seeds.with_indices` sets
    it, so that rules may move the node.
    """

    seed: RandomSeedConfig | None
    index: int


Seed: TypeAlias = int | RandomSeedConfig | IndexedSeed | None
"""An int gives the same order in every execution, None a different one in each."""


@dataclass(frozen=True, kw_only=True, eq=False)
class UserFunction:
    """A user function or class, and how to call it."""

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
    """Resources of each task or actor."""
    resources_fn: Callable[[], Mapping[str, Any]] | None = None
    """Returns options of `remote` before each worker starts (`ray_remote_args_fn`)."""
    timeout_s: float | None = None
    """Maximum seconds of one call (with a row or batch); None for no limit."""
    on_error: OnError = "raise"
    """Effect of an error or timeout: end the execution, or skip and count the rows."""

    @property
    def is_class(self) -> bool:
        """True for a class, which is constructed before it is called."""
        return isinstance(self.function, type)

    @property
    def name(self) -> str:
        """Name of the function or class, for display."""
        function = getattr(self.function, "func", self.function)  # of a functools.partial
        return getattr(function, "__name__", None) or type(function).__name__


@dataclass(frozen=True, kw_only=True, eq=False)
class HeldBlock:
    """A block that already exists."""

    value: ObjectRef[pa.Table] | pa.Table
    """The rows, or a reference to them."""
    num_rows: int
    size_bytes: int
    schema: pa.Schema
    input_files: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Node:
    """Base class of plan nodes. Nodes are compared by identity."""

    label: ClassVar[str] = ""
    """Name of the operator if it is not that of the class."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        """Input nodes, in order."""
        return ()

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        """Return the same node on other inputs."""
        assert not inputs, f"{self.name} has no inputs"
        return self

    @property
    def name(self) -> str:
        """Name of the operator in `explain()`, `stats()` and the progress display."""
        return self.label or type(self).__name__


@dataclass(frozen=True, kw_only=True, eq=False)
class OneInput(Node):
    """Base class of nodes with one input."""

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
    """Requested number of read tasks (`override_num_blocks`); None lets the executor choose."""
    concurrency: int | None = None
    """Maximum number of concurrent read tasks."""
    resources: Resources = field(default_factory=Resources)
    columns: tuple[str, ...] | None = None
    """Projected columns in their order, set by the rules; None for all."""
    task_order: RandomizeBlocks | None = None
    """Node whose seed shuffles the read tasks, set by the rules; its input is ignored."""

    @property
    def name(self) -> str:
        return f"Read{self.source.get_name()}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Held(Node):
    """Blocks that already exist: materialized datasets and datasets made from objects in memory."""

    label = "InputData"
    blocks: tuple[HeldBlock, ...]

    @cached_property
    def num_rows(self) -> int:
        """Rows of all blocks."""
        return sum(block.num_rows for block in self.blocks)


# -- rows and batches


@dataclass(frozen=True, kw_only=True, eq=False)
class Mapped(OneInput):
    """Base class of nodes that call a user function."""

    function: UserFunction

    @property
    def name(self) -> str:
        return f"{super().name}({self.function.name})"


@dataclass(frozen=True, kw_only=True, eq=False)
class MapRows(Mapped):
    """`map`: a dict for each row."""

    label = "Map"


@dataclass(frozen=True, kw_only=True, eq=False)
class FlatMap(Mapped):
    """`flat_map`: any number of dicts for each row."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FilterRows(Mapped):
    """`filter(fn)`: the rows for which a function is true."""

    label = "Filter"


@dataclass(frozen=True, kw_only=True, eq=False)
class MapBatches(Mapped):
    """`map_batches`."""

    batch_size: int | Literal["auto"] | None = None
    """Rows of a batch; None for whole blocks."""
    batch_format: BatchFormat = "default"
    zero_copy: bool = True
    """True for read-only views of blocks; False for writable copies."""
    keeps_row_count: bool = False
    """True if the function keeps the number of rows (`udf_modifying_row_count=False`)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Project(OneInput):
    """Columns computed from columns: `select_columns`, `drop_columns`, `rename_columns`,
    `with_column` and `with_columns`.
    """

    expressions: tuple[Expr, ...] = ()
    """Arguments of `expressions.project`; `star()` is all columns of the input."""
    dropped: tuple[str, ...] = ()
    """Columns of the input to remove first (`drop_columns` if the other columns are unknown)."""
    renamed: Mapping[str, str] | None = None
    """New names by old name (`rename_columns`); excludes `expressions` and `dropped`."""
    resources: Resources = field(default_factory=Resources)
    compute: ComputeStrategy | None = None
    """Strategy for expressions with user functions: an `ActorPoolStrategy` for classes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FilterExpr(OneInput):
    """`filter(expr=)`: the rows for which a predicate is true."""

    label = "Filter"
    predicate: Expr


@dataclass(frozen=True, kw_only=True, eq=False)
class RandomSample(OneInput):
    """`random_sample`: each row with the probability `fraction`."""

    fraction: float
    seed: Seed = None


# -- order-preserving operators that do not read rows


@dataclass(frozen=True, kw_only=True, eq=False)
class Limit(OneInput):
    """The first rows."""

    limit: int

    @property
    def name(self) -> str:
        return f"Limit({self.limit})"


@dataclass(frozen=True, kw_only=True, eq=False)
class Repartition(OneInput):
    """`repartition` without keys: the same rows in other blocks, in the same order."""

    num_blocks: int | None = None
    target_num_rows: int | None = None
    strict: bool = False
    """With `target_num_rows`: blocks but the last have exactly this many rows; otherwise at most.
    """


@dataclass(frozen=True, kw_only=True, eq=False)
class RandomizeBlocks(OneInput):
    """`randomize_block_order`."""

    label = "RandomizeBlockOrder"
    seed: Seed = None


# -- all to all


@dataclass(frozen=True, kw_only=True, eq=False)
class RandomShuffle(OneInput):
    """Rows in random order."""

    seed: Seed = None
    num_blocks: int | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Sort(OneInput):
    """Rows sorted by keys."""

    keys: tuple[str, ...]
    descending: tuple[bool, ...]
    boundaries: tuple[Any, ...] | None = None
    """Values of the first key at which new blocks begin."""


@dataclass(frozen=True, kw_only=True, eq=False)
class HashPartition(OneInput):
    """`repartition(keys=)`: rows with equal keys in one block."""

    label = "Repartition"
    keys: tuple[str, ...]
    num_blocks: int | None = None
    sort: bool = False
    """True to sort the rows of each block by the keys."""


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


# -- several inputs


@dataclass(frozen=True, kw_only=True, eq=False)
class ManyInputs(Node):
    """Base class of nodes with several inputs."""

    parts: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        same = all(new is old for new, old in zip(inputs, self.parts, strict=True))
        return self if same else dataclasses.replace(self, parts=tuple(inputs))


@dataclass(frozen=True, kw_only=True, eq=False)
class Join(ManyInputs):
    """Rows of two inputs, matched by keys."""

    join_type: JoinType
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
    """The columns of all inputs, side by side."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Mix(ManyInputs):
    """Rows of all inputs, interleaved by weight."""

    weights: tuple[float, ...]
    stop_when: Literal["shortest", "longest"] = "shortest"


# -- outputs


@dataclass(frozen=True, kw_only=True, eq=False)
class Write(OneInput):
    """Rows written to a sink. The output has one row per write task: `return` (the pickled result
    of `Datasink.write`), `num_rows` and `size_bytes`.
    """

    sink: Datasink[Any]
    concurrency: int | None = None
    resources: Resources = field(default_factory=Resources)

    @property
    def name(self) -> str:
        return f"Write{self.sink.get_name()}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Cache(OneInput):
    """`cache()`: the first complete execution stores its rows; later ones read them."""

    path: str | None = None
    """Directory for a cache that outlives the program; None for the lifetime of the program."""
    slot: Any = None
    """State shared by all plans that contain this node (`execute.cache`)."""


def walk(node: Node) -> list[Node]:
    """Return every node once, inputs before their consumers."""
    seen: set[int] = set()
    found: list[Node] = []
    # Iterative: loops in programs create deep plans.
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


def rewrite_bottom_up(node: Node, change: Callable[[Node, Node], Node]) -> Node:
    """Replace every node by `change(node, original)`, inputs before their consumers; `node` already
    has the changed inputs.
    """
    done: dict[int, Node] = {}
    for original in walk(node):
        inputs = [done[id(each)] for each in original.inputs]
        done[id(original)] = change(original.with_inputs(inputs), original)
    return done[id(node)]


@dataclass(frozen=True)
class Rewrite(Generic[T]):
    """The replacement of a node."""

    build: Callable[[list[Node]], Node]
    """Builds it from the rewritten parts."""
    parts: Sequence[tuple[Node, T]] = ()
    """Nodes to rewrite first, each with the information for it."""


def rewrite_top_down(node: Node, info: T, visit: Callable[[Node, T], Rewrite[T]]) -> Node:
    """Rewrite a plan by `visit(node, info)`, where each node passes information to its inputs.
    Iterative, as `walk`.
    """
    stack: list[tuple[Rewrite[T], list[Node]]] = [(visit(node, info), [])]
    while True:
        rewrite, done = stack[-1]
        if len(done) < len(rewrite.parts):
            stack.append((visit(*rewrite.parts[len(done)]), []))
            continue
        built = rewrite.build(done)
        stack.pop()
        if not stack:
            return built
        stack[-1][1].append(built)
