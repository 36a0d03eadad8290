"""`DataIterator`: the rows of a dataset, or one rank's share of them, as a program loops over them.

Every loop over what an `iter_*` method returns is a pass over the data: an epoch. `state_dict` says
at any moment how far the program is, and `load_state_dict` lets the next pass continue there. Where
the rows come from is a `BatchSource`'s matter; batches and cursors are made in `iterate`, tensors in the
modules with the frameworks' names.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

from syncline.core import api
from syncline.data.collate_fn import CollateFn
from syncline.data.columnar import block as blocks
from syncline.data.columnar.block import BatchFormat, Block
from syncline.data.context import DataContext
from syncline.data.iterate.batch_source import BatchSource
from syncline.data.iterate.batching import (
    BatchIterable,
    BatchOptions,
    Pass,
    RowIterable,
    worker_device,
)
from syncline.data.iterate.cursor import VERSION, Cursor, CursorError, CursorTracker
from syncline.data.options import keywords

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from syncline.data.dataset import MaterializedDataset


class LoopOptions(TypedDict, total=False):
    """What every loop over batches takes."""

    prefetch_batches: int
    """Batches that a thread makes ahead; 0: each is made when the program asks for it."""
    drop_last: bool
    """Leave out a last batch with fewer rows."""
    local_shuffle_buffer_size: int | None
    """Rows of windows within which the order is random; None: the order of the dataset."""
    local_shuffle_seed: int | None
    """Seed of that order; None: every execution has its own."""


LOOP: LoopOptions = {
    each.name: each.default
    for each in fields(BatchOptions)
    if each.name in LoopOptions.__annotations__
}  # type: ignore[assignment]
"""Keywords of every loop over batches, with their defaults."""


@dataclass(frozen=True, kw_only=True)
class IteratorStatistics:
    """What a `DataIterator` did."""

    passes: int
    """Passes that have begun."""
    items: int
    """Batches that the program got (of `iter_rows`: pieces of blocks)."""
    waited_s: float
    """How long the program waited for its input, in seconds; other than the rest of its time, input
    that is made faster saves this.
    """
    in_pass: bool
    """Whether the program is in a loop, which has neither ended nor been left."""


class DataIterator:
    """Rows, batch by batch, pass by pass. It can be pickled, and used in one process at a time.

    The iterable that an `iter_*` method returns may be looped over again and again: each loop is
    the next epoch. A loop that is left early ends its pass at once; the next loop is a new epoch
    all the same. One loop at a time moves `state_dict`.
    """

    def __init__(self, source: BatchSource) -> None:
        self._source = source
        self._progress = CursorTracker()
        self._loaded: tuple[Cursor, ...] = ()
        self._before_pass: Callable[[], None] | None = None

    # -- passes

    def before_pass(self, call: Callable[[], None]) -> None:
        """Have `call` called as every pass begins, on the program's own thread, before anything is
        read. Does not travel along.
        """
        self._before_pass = call

    def iter_rows(self) -> Iterable[dict[str, Any]]:
        """The rows, as dicts of plain Python values and ndarrays."""
        options = _options(BatchOptions(batch_size=None))
        return RowIterable(
            begin=partial(self._begin, options),
            prefetch_batches=options.prefetch_batches,
            progress=self._progress,
        )

    @keywords(LOOP)
    def iter_batches(
        self,
        *,
        batch_size: int | None = 256,
        batch_format: BatchFormat = "default",
        **options: Unpack[LoopOptions],
    ) -> Iterable[Any]:
        """Batches of `batch_size` rows (None: as the blocks come): dicts of ndarrays, DataFrames or
        tables.

        Args:
            batch_size: Rows of a batch; the last may have fewer.
            batch_format: "default" and "numpy" for dicts of ndarrays, "pandas", "pyarrow", or None
                for tables. Arrays are read-only views of the dataset's blocks where the layout
                allows.
            **options: `LoopOptions`.

        ValueError and TypeError for impossible arguments, at the call.
        """
        batch = BatchOptions(batch_size=batch_size, **options)
        blocks.check_batch_format(batch_format)
        return self._batches(batch, convert=lambda table: blocks.to_batch(table, batch_format))

    @keywords(LOOP)
    def iter_torch_batches(
        self,
        *,
        batch_size: int | None = 256,
        dtypes: Any = None,
        device: Any = "auto",
        collate_fn: Any = None,
        pin_memory: bool = False,
        **options: Unpack[LoopOptions],
    ) -> Iterable[Any]:
        """Batches as dicts of `torch.Tensor`, `(rows, ...)` each, or as what `collate_fn` makes.

        Args as in `iter_batches`, and:
            dtypes: A `torch.dtype` for all columns, or a dict by column; None keeps the columns'
            own. device: Where the tensors go; "auto" is the device of the training worker, or the
            CPU outside of training. collate_fn: A `CollateFn`, or any callable on a dict of
            ndarrays; tensors in what it returns are moved to the device. pin_memory: Whether
            tensors pass through page-locked memory on their way to a GPU.

        Tensors on the CPU may share memory with the dataset's blocks: clone them before changing
        them in place. ValueError for `collate_fn` with `dtypes`. In the loop: TypeError for columns
        without numbers, RuntimeError for ragged ones.
        """
        batch = BatchOptions(batch_size=batch_size, **options)
        conversion = _framework("torch").torch_conversion(
            dtypes=dtypes,
            device=device,
            collate_fn=collate_fn,
            pin_memory=pin_memory,
            worker_device=worker_device(),
        )
        return self._batches(batch, convert=conversion.convert, receive=conversion.receive)

    @keywords(LOOP)
    def iter_tf_batches(
        self, *, batch_size: int | None = 256, dtypes: Any = None, **options: Unpack[LoopOptions]
    ) -> Iterable[Any]:
        """Batches as dicts of TensorFlow tensors; `dtypes` is one for all columns, or a dict by
        column. ImportError without TensorFlow.
        """
        batch = BatchOptions(batch_size=batch_size, **options)
        return self._batches(batch, convert=_framework("tensorflow").batch_conversion(dtypes))

    @keywords(LOOP)
    def iter_jax_batches(
        self,
        *,
        batch_size: int = 256,
        dtypes: Any = None,
        collate_fn: CollateFn[Any] | None = None,
        synchronize_batches: bool = False,
        paddings: Any = None,
        **options: Unpack[LoopOptions],
    ) -> Iterable[Any]:
        """Batches as dicts of JAX arrays, spread over the devices of all processes along the rows.

        Args as in `iter_batches`, and:
            batch_size: Rows for this process; a multiple of its number of devices. dtypes: One for
            all columns, or a dict by column. collate_fn: A `CollateFn` that makes ndarrays, or
            dicts of them. synchronize_batches: Whether the processes check before each batch that
            all of them have one of the same size. paddings: Values, one or by column, with which a
            last batch is filled up to `batch_size`.

        ImportError without JAX. ValueError for a `batch_size` that does not fit the devices; in the
        loop, for a last batch that does not and is neither dropped nor padded, and with
        `synchronize_batches` for batches that differ.
        """
        batch = BatchOptions(batch_size=batch_size, **options)
        conversion = _framework("jax").batch_conversion(
            batch_size=batch_size,
            dtypes=dtypes,
            collate_fn=collate_fn,
            synchronize=synchronize_batches,
            paddings=paddings,
        )
        return self._batches(batch, convert=conversion.convert, receive=conversion.receive)

    @keywords(LOOP)
    def to_torch(
        self,
        *,
        label_column: str | None = None,
        feature_columns: Sequence[str]
        | Sequence[Sequence[str]]
        | Mapping[str, Sequence[str]]
        | None = None,
        label_column_dtype: Any = None,
        feature_column_dtypes: Any = None,
        batch_size: int = 1,
        unsqueeze_label_tensor: bool = True,
        unsqueeze_feature_tensors: bool = True,
        **options: Unpack[LoopOptions],
    ) -> Any:
        """A `torch.utils.data.IterableDataset` of (features, label); for older programs,
        `iter_torch_batches` does more.

        Columns are put side by side: features `(rows, columns)`. `feature_columns` may be a list
        (one tensor), a list of lists (a list of tensors) or a dict of lists (a dict of tensors);
        None is all but the label. `feature_column_dtypes` has the same form, or is one for all. The
        label is `(rows, 1)`, or `(rows,)` without `unsqueeze_label_tensor`; None without a
        `label_column`.
        """
        batch = BatchOptions(batch_size=batch_size, **options)
        framework = _framework("torch")
        split = framework.FeaturesAndLabel(
            label=label_column,
            features=feature_columns,
            label_dtype=label_column_dtype,
            feature_dtypes=feature_column_dtypes,
            unsqueeze_label=unsqueeze_label_tensor,
            unsqueeze_features=unsqueeze_feature_tensors,
        )
        return framework.Examples(self._batches(batch, convert=split))

    @keywords(LOOP)
    def to_tf(
        self,
        feature_columns: str | list[str],
        label_columns: str | list[str],
        *,
        additional_columns: str | list[str] | None = None,
        batch_size: int = 1,
        feature_type_spec: Any = None,
        label_type_spec: Any = None,
        additional_type_spec: Any = None,
        **options: Unpack[LoopOptions],
    ) -> Any:
        """A `tf.data.Dataset` of (features, labels), or (features, labels, additional).

        One column is a tensor, a list of columns a dict of tensors. Type specs are taken from the
        schema where they are not given. ImportError without TensorFlow, ValueError for unknown
        columns.
        """
        batch = BatchOptions(batch_size=batch_size, **options)
        framework = _framework("tensorflow")
        columns, specs = [feature_columns, label_columns], [feature_type_spec, label_type_spec]
        if additional_columns is not None:
            columns, specs = [*columns, additional_columns], [*specs, additional_type_spec]
        specs = framework.type_specs(columns, specs, self.schema)
        return framework.dataset(
            self._batches(batch, convert=framework.group_conversion(columns, specs)), specs
        )

    # -- where the program is

    def state_dict(self) -> dict[str, Any]:
        """How far the program is, in a form that JSON holds; a few hundred bytes, whatever the
        length of the epoch.

        Rows count that the program got; what was prefetched does not. In a loop it is the state
        after the batch that the program works on. After a loop that was left early it is where that
        loop was left.
        """
        cursor = self._progress.cursor
        if self._loaded or cursor is None:
            return {"version": VERSION, "states": [loaded.to_dict() for loaded in self._loaded]}
        return cursor.to_dict()

    def load_state_dict(self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Let the next pass continue where states were taken.

        Args:
            state: What `state_dict` of the iterators of *all* ranks gave, as a list; the number of
            ranks may be another one now. For
                an iterator over a whole dataset its one state will do; and where as many ranks go
                on, each may load its own state.

        With the same ranks, batch size and shuffle, the order is that of a run without an
        interruption; otherwise the rows that remain come in their order in the dataset. CursorError
        (a ValueError) for states of another dataset, or that do not belong together.
        """
        cursors: list[Cursor] = []
        for each in _flat(state):
            cursor = Cursor.from_dict(each, plan=self._source.plan)
            if (
                cursor not in cursors
            ):  # before the first pass every rank saves what all of them have loaded
                cursors.append(cursor)
        self._loaded = tuple(cursors)

    # -- the dataset

    def schema(self) -> Any:
        """The schema of the dataset; None where it has none."""
        return self._source.schema()

    def materialize(self) -> MaterializedDataset:
        """A dataset that holds the rows of one pass."""
        return self._source.materialize()

    def get_context(self) -> DataContext:
        """The settings of the dataset."""
        return self._source.context

    def world_size(self) -> int:
        """How many iterators share the dataset: 1, or the `n` of `streaming_split`."""
        return self._source.world_size

    def stats(self) -> str:
        """Where the time went: of the last execution by operator, and what this program waited for
        its input.
        """
        mine = self.statistics()
        waited = f"Iterator: {mine.passes} passes, {mine.items} batches, {mine.waited_s:.3f} s waited for input"
        return "\n".join(text for text in (self._source.stats(), waited) if text)

    def statistics(self) -> IteratorStatistics:
        """What this iterator did, in numbers."""
        meter = self._progress.meter
        return IteratorStatistics(
            passes=self._progress.passes,
            items=meter.items,
            waited_s=meter.waited_s,
            in_pass=self._progress.in_pass,
        )

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(
            "a DataIterator has several ways to go through its rows: loop over iter_batches(), iter_rows() or another of them"
        )

    def __repr__(self) -> str:
        return f"DataIterator({self._source!r})"

    def __getstate__(self) -> dict[str, Any]:
        # How far this process is, and who wants to know, means nothing in another one.
        return {**self.__dict__, "_progress": CursorTracker(), "_before_pass": None}

    def _batches(
        self, options: BatchOptions, *, convert: Any, receive: Any = None
    ) -> Iterable[Any]:
        options = _options(options)
        return BatchIterable(
            begin=partial(self._begin, options),
            options=options,
            convert=convert,
            receive=receive or _as_it_is,
            progress=self._progress,
        )

    def _begin(self, options: BatchOptions) -> Pass:
        if self._before_pass is not None:
            self._before_pass()
        began = time.perf_counter()
        current = self._source.begin(options, self._loaded)
        self._loaded = ()
        self._progress.meter.waited_s += time.perf_counter() - began
        return current


def _as_it_is(batch: Block) -> Block:
    return batch


def _options(options: BatchOptions) -> BatchOptions:
    """In local mode batches are made on the program's own thread, where breakpoints reach the
    terminal.
    """
    return replace(options, prefetch_batches=0) if api.ensure_engine().is_local_mode else options


def _framework(name: str) -> Any:
    """The module of `iterate` that knows a framework, loaded when it is first needed. ImportError
    where the framework is not installed.
    """
    try:
        return importlib.import_module(f"syncline.data.iterate.{name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("syncline"):
            raise
        message = f"batches of {error.name} need the library {error.name!r}, which is not installed: pip install {error.name}"
        raise ImportError(message, name=error.name) from error


def _flat(state: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The states of single ranks in what a program saved; each rank once."""
    if isinstance(state, Mapping):
        if "states" in state:
            yield from _flat(state["states"])
        else:
            yield state
        return
    if not isinstance(state, list | tuple):
        raise CursorError(
            f"a state of an iterator is a dict, or a list of those of all ranks, not a {type(state).__name__}"
        )
    for each in state:
        yield from _flat(each)
