"""`DataIterator`: loops over the rows of a dataset, or over one rank's share of them.

Every loop over the result of an `iter_*` method is a pass over the data: an epoch. `state_dict`
returns the position at any moment, and `load_state_dict` resumes there. A `BatchSource` provides
the rows; batches and cursors are made in `iterate`, tensors in the modules named after the
frameworks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypedDict

from syncline.core import api
from syncline.data.collate_fn import CollateFn
from syncline.data.columnar import block as blocks
from syncline.data.columnar.block import AnyBatch, BatchFormat, Block, Row
from syncline.data.columnar.schemas import Schema
from syncline.data.context import DataContext
from syncline.data.iterate import torch_background
from syncline.data.iterate.batch_source import BatchSource, Materialized
from syncline.data.iterate.batching import (
    BatchIterable,
    BatchOptions,
    Pass,
    RowIterable,
    worker_device,
)
from syncline.data.iterate.cursor import VERSION, Cursor, CursorError, CursorTracker
from syncline.data.options import keywords
from syncline.optional import load
from syncline.records import dataclass

if TYPE_CHECKING:
    from typing_extensions import Unpack

DTypes: TypeAlias = Any
"""A dtype of the framework, or several in a container."""
State: TypeAlias = Mapping[str, Any]
"""Position of an iterator, as JSON."""
Convert: TypeAlias = Callable[[Any], AnyBatch]


class LoopOptions(TypedDict, total=False):
    """Options of every loop over batches."""

    prefetch_batches: int
    """Batches that a thread prepares ahead, or a few more small ones if no `collate_fn` runs; 0
    prepares each batch on request.
    """
    drop_last: bool
    """Drop the last batch if it has fewer rows."""
    local_shuffle_buffer_size: int | None
    """Rows of the windows within which rows are shuffled; None keeps the order of the dataset."""
    local_shuffle_seed: int | None
    """Seed of the shuffle; None draws one for every execution."""


LOOP: LoopOptions = {
    each.name: each.default
    for each in fields(BatchOptions)
    if each.name in LoopOptions.__annotations__
}  # type: ignore[assignment]
"""Defaults of `LoopOptions`."""


@dataclass(frozen=True, kw_only=True)
class IteratorStatistics:
    """Statistics of a `DataIterator`."""

    passes: int
    """Passes that have begun."""
    items: int
    """Batches that the program received (`iter_rows`: slices of blocks)."""
    waited_s: float
    """Seconds that the program waited for input; faster input saves this time."""
    in_pass: bool
    """True inside a loop."""


class DataIterator:
    """Rows, batch by batch, pass by pass. Picklable; used in one process at a time.

    The iterable that an `iter_*` method returns can be looped over repeatedly: each loop is the
    next epoch. A loop that is left early ends its pass, and the next loop is a new epoch. Only one
    loop at a time updates `state_dict`.
    """

    def __init__(self, source: BatchSource) -> None:
        self._source = source
        self._progress = CursorTracker()
        self._loaded: tuple[Cursor, ...] = ()
        self._before_pass: Callable[[], None] | None = None

    # -- passes

    def before_pass(self, call: Callable[[], None]) -> None:
        """Call `call` on the program's thread at the start of every pass, before anything is read.
        Not pickled.
        """
        self._before_pass = call

    def before_next_batch(self, call: Callable[[], None]) -> None:
        """Call `call` on the program's thread when it is done with a batch and requests the next
        one, or the end of the pass. Not pickled.
        """
        self._progress.on_request = call

    def iter_rows(self) -> Iterable[Row]:
        """Iterate over the rows as dicts of plain Python values and ndarrays."""
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
    ) -> Iterable[AnyBatch]:
        """Iterate over batches: dicts of ndarrays, DataFrames or tables.

        Args:
            batch_size: Rows of a batch; the last may have fewer. None for blocks as they come.
            batch_format: "default" and "numpy" for dicts of ndarrays, "pandas", "pyarrow", or None
                for tables. Arrays are read-only views of the dataset's blocks if the layout allows.
            **options: `LoopOptions`.

        Raises:
            ValueError, TypeError: Impossible arguments, at the call.
        """
        batch = BatchOptions(batch_size=batch_size, **options)
        blocks.check_batch_format(batch_format)
        return self._batches(
            batch, convert=lambda table: blocks.to_batch(table, batch_format), runs_user_code=False
        )

    @keywords(LOOP)
    def iter_torch_batches(
        self,
        *,
        batch_size: int | None = 256,
        dtypes: DTypes = None,
        device: object = "auto",
        collate_fn: object = None,
        pin_memory: bool = False,
        **options: Unpack[LoopOptions],
    ) -> Iterable[AnyBatch]:
        """Iterate over batches as dicts of `torch.Tensor`, `(rows, ...)` each, or as results of
        `collate_fn`.

        Tensors on the CPU may share memory with the dataset's blocks: clone them before changing
        them in place.

        Args:
            batch_size: As in `iter_batches`.
            dtypes: A `torch.dtype` for all columns, or a dict by column; None keeps the columns'
                types.
            device: Device of the tensors; "auto" is the device of the training worker, or the CPU
                outside of training.
            collate_fn: A `CollateFn`, or a callable on a dict of ndarrays; tensors in its result
                are moved to the device.
            pin_memory: Copy tensors to page-locked memory before they go to a GPU.
            **options: `LoopOptions`.

        Raises:
            ValueError: `collate_fn` together with `dtypes`.
            TypeError: In the loop, for columns that are not numbers.
            RuntimeError: In the loop, for ragged columns.
        """
        batch = BatchOptions(batch_size=batch_size, **options)
        own_device = worker_device()
        has_defaults = dtypes is None and collate_fn is None and device == "auto" and not pin_memory
        if has_defaults and own_device is None and not torch_background.is_imported():
            conversion: Any = torch_background.BackgroundConversion()
        else:
            conversion = _torch("iter_torch_batches").torch_conversion(
                dtypes=dtypes,
                device=device,
                collate_fn=collate_fn,
                pin_memory=pin_memory,
                worker_device=own_device,
            )
        return self._batches(
            batch,
            convert=conversion.convert,
            receive=conversion.receive,
            runs_user_code=collate_fn is not None,
        )

    @keywords(LOOP)
    def iter_tf_batches(
        self, *, batch_size: int | None = 256, dtypes: DTypes = None, **options: Unpack[LoopOptions]
    ) -> Iterable[AnyBatch]:
        """Iterate over batches as dicts of TensorFlow tensors; `dtypes` is one for all columns, or
        a dict by column. Raise ImportError without TensorFlow.
        """
        batch = BatchOptions(batch_size=batch_size, **options)
        return self._batches(batch, convert=_tensorflow("iter_tf_batches").batch_conversion(dtypes))

    @keywords(LOOP)
    def iter_jax_batches(
        self,
        *,
        batch_size: int = 256,
        dtypes: DTypes = None,
        collate_fn: CollateFn[AnyBatch] | None = None,
        synchronize_batches: bool = False,
        paddings: object = None,
        **options: Unpack[LoopOptions],
    ) -> Iterable[AnyBatch]:
        """Iterate over batches as dicts of JAX arrays, sharded by rows over the devices of all
        processes.

        Args:
            batch_size: Rows for this process; a multiple of its number of devices.
            dtypes: One for all columns, or a dict by column.
            collate_fn: A `CollateFn` that returns ndarrays, or dicts of them.
            synchronize_batches: Check before each batch that all processes have a batch of the same
                size.
            paddings: Values, one or by column, that fill the last batch up to `batch_size`.
            **options: `LoopOptions`.

        Raises:
            ImportError: JAX is not installed.
            ValueError: `batch_size` does not fit the devices; in the loop, a last batch that does
                not fit and is neither dropped nor padded, or with `synchronize_batches` batches
                that differ.
        """
        batch = BatchOptions(batch_size=batch_size, **options)
        jax = load(
            "syncline.data.iterate.jax", purpose="iter_jax_batches", install="jax", library="jax"
        )
        conversion = jax.JaxConversion(
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
        label_column_dtype: DTypes = None,
        feature_column_dtypes: DTypes = None,
        batch_size: int = 1,
        unsqueeze_label_tensor: bool = True,
        unsqueeze_feature_tensors: bool = True,
        **options: Unpack[LoopOptions],
    ) -> Any:
        """Return a `torch.utils.data.IterableDataset` of (features, label), for older programs;
        `iter_torch_batches` is more general.

        Columns are concatenated: features `(rows, columns)`. `feature_columns` may be a list (one
        tensor), a list of lists (a list of tensors) or a dict of lists (a dict of tensors); None
        means all columns except the label. `feature_column_dtypes` has the same form, or is one
        dtype for all. The label is `(rows, 1)`, or `(rows,)` without `unsqueeze_label_tensor`; None
        without a `label_column`.
        """
        batch = BatchOptions(batch_size=batch_size, **options)
        framework = _torch("to_torch")
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
        feature_type_spec: object = None,
        label_type_spec: object = None,
        additional_type_spec: object = None,
        **options: Unpack[LoopOptions],
    ) -> Any:
        """Return a `tf.data.Dataset` of (features, labels), or (features, labels, additional).

        One column is a tensor, a list of columns a dict of tensors. Type specs that are not passed
        are taken from the schema.

        Raises:
            ImportError: TensorFlow is not installed.
            ValueError: A column does not exist.
        """
        batch = BatchOptions(batch_size=batch_size, **options)
        framework = _tensorflow("to_tf")
        columns, specs = [feature_columns, label_columns], [feature_type_spec, label_type_spec]
        if additional_columns is not None:
            columns, specs = [*columns, additional_columns], [*specs, additional_type_spec]
        specs = framework.type_specs(columns, specs, self.schema)
        return framework.dataset(
            self._batches(batch, convert=framework.group_conversion(columns, specs)), specs
        )

    # -- position

    def state_dict(self) -> State:
        """Return the position in a form that JSON can hold: a few hundred bytes, also for a
        long epoch.

        Only rows that the program received count, not prefetched rows. In a loop it is the state
        after the current batch; after a loop that was left early, the state at that point.
        """
        cursor = self._progress.cursor
        if self._loaded or cursor is None:
            return {"version": VERSION, "states": [loaded.to_dict() for loaded in self._loaded]}
        return cursor.to_dict()

    def load_state_dict(self, state: State | Sequence[State]) -> None:
        """Resume the next pass at saved states.

        With the same ranks, batch size and shuffle, the order is that of an uninterrupted run;
        otherwise the remaining rows come in their order in the dataset.

        Args:
            state: A list of the results of `state_dict` on *all* ranks; the number of ranks may
                differ now. The single state suffices for an iterator over a whole dataset, and each
                rank may load its own state if the number of ranks is the same.

        Raises:
            CursorError: A ValueError; the states are of another dataset, or do not belong together.
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

    def schema(self) -> Schema | None:
        """Return the schema of the dataset; None for a dataset without columns."""
        return self._source.schema()

    def materialize(self) -> Materialized:
        """Return a dataset that holds the rows of one pass."""
        return self._source.materialize()

    def get_context(self) -> DataContext:
        """Return the settings of the dataset."""
        return self._source.context

    def world_size(self) -> int:
        """Return the number of iterators that share the dataset: 1, or the `n` of
        `streaming_split`.
        """
        return self._source.world_size

    def stats(self) -> str:
        """Return the time of each operator of the last execution, and the time that this program
        waited for input.
        """
        mine = self.statistics()
        waited = (
            f"Iterator: {mine.passes} passes, {mine.items} batches, "
            f"{mine.waited_s:.3f} s waited for input"
        )
        return "\n".join(text for text in (self._source.stats(), waited) if text)

    def statistics(self) -> IteratorStatistics:
        """Return the statistics of this iterator."""
        meter = self._progress.meter
        return IteratorStatistics(
            passes=self._progress.passes,
            items=meter.items,
            waited_s=meter.waited_s,
            in_pass=self._progress.in_pass,
        )

    def __iter__(self) -> NoReturn:
        raise TypeError(
            "a DataIterator cannot be iterated directly: loop over iter_batches(), iter_rows() or "
            "another iter_* method"
        )

    def __repr__(self) -> str:
        return f"DataIterator({self._source!r})"

    def __getstate__(self) -> State:
        # The position and the callback belong to this process.
        return {**self.__dict__, "_progress": CursorTracker(), "_before_pass": None}

    def _batches(
        self,
        options: BatchOptions,
        *,
        convert: Convert,
        receive: Convert | None = None,
        runs_user_code: bool = True,
    ) -> Iterable[AnyBatch]:
        options = _options(options)
        return BatchIterable(
            begin=partial(self._begin, options),
            options=options,
            convert=convert,
            receive=receive or _identity,
            progress=self._progress,
            runs_user_code=runs_user_code,
        )

    def _begin(self, options: BatchOptions) -> Pass:
        if self._before_pass is not None:
            self._before_pass()
        began = time.perf_counter()
        current = self._source.begin(options, self._loaded)
        self._loaded = ()
        self._progress.meter.waited_s += time.perf_counter() - began
        return current


def _identity(batch: Block) -> Block:
    return batch


def _options(options: BatchOptions) -> BatchOptions:
    """Return the options of a loop. In local mode the program's thread prepares the batches, so
    that breakpoints reach the terminal.
    """
    return replace(options, prefetch_batches=0) if api.ensure_engine().is_local_mode else options


def _torch(purpose: str) -> Any:
    return load("syncline.data.iterate.torch", purpose=purpose, install="torch", library="torch")


def _tensorflow(purpose: str) -> Any:
    return load(
        "syncline.data.iterate.tensorflow",
        purpose=purpose,
        install="tensorflow",
        library="tensorflow",
    )


def _flat(state: State | Sequence[State]) -> Iterator[State]:
    """Yield the states of single ranks, each once."""
    if isinstance(state, Mapping):
        if "states" in state:
            yield from _flat(state["states"])
        else:
            yield state
        return
    if not isinstance(state, list | tuple):
        raise CursorError(
            "the state of an iterator is a dict, or a list of the dicts of all ranks, "
            f"not a {type(state).__name__}"
        )
    for each in state:
        yield from _flat(each)
