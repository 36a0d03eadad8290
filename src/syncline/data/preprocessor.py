"""Preprocessors: learn statistics from a dataset in one pass, and apply them to datasets and
batches.

Covered: the base class (fit, transform, serialize) and the plan of aggregators that a fit runs. The
library's preprocessors are in `preprocessors/`.
"""

from __future__ import annotations

import base64
import pickle
import warnings
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import cloudpickle
import numpy as np
import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.columnar import frames
from syncline.data.columnar.aggregate import AggregateFn
from syncline.records import dataclass

if TYPE_CHECKING:
    import pandas as pd

    from syncline.data.dataset import Dataset

    DataBatch: TypeAlias = pd.DataFrame | pa.Table | Mapping[str, np.ndarray] | np.ndarray

__all__ = [
    "BatchFormat",
    "Preprocessor",
    "PreprocessorNotFittedException",
    "SerializablePreprocessorBase",
    "StatComputationPlan",
]

SelfT = TypeVar("SelfT", bound="Preprocessor")
TransformOptions = Mapping[str, Any]
"""Keyword arguments of `transform`."""
_MAGIC = b"CPKL:"


class BatchFormat(str, Enum):
    """Type of the batches that a `_transform_*` method takes."""

    PANDAS = "pandas"
    ARROW = "arrow"
    NUMPY = "numpy"


class PreprocessorNotFittedException(RuntimeError):
    """A preprocessor must be fitted before it transforms."""


@dataclass(frozen=True)
class _Planned:
    aggregate: AggregateFn
    post_process: Callable[[Any], Any]


class StatComputationPlan:
    """The aggregators of a fit; all run in one pass over the dataset."""

    def __init__(self) -> None:
        self._planned: dict[str, _Planned] = {}

    def reset(self) -> None:
        """Remove all aggregators."""
        self._planned.clear()

    def add_aggregator(
        self,
        *,
        aggregator_fn: Callable[[str], AggregateFn],
        columns: Sequence[str],
        post_process_fn: Callable[[Any], Any] = lambda value: value,
    ) -> None:
        """Add one aggregator per column.

        Args:
            aggregator_fn: Function from a column's name to its aggregator; the aggregator's name is
                the key of the statistic.
            columns: Names of the columns.
            post_process_fn: Function from the aggregator's result, None without rows, to the
                statistic.
        """
        for column in columns:
            aggregate = aggregator_fn(column)
            self._planned[aggregate.name] = _Planned(aggregate, post_process_fn)

    def include(self, other: StatComputationPlan) -> None:
        """Add the aggregators of another plan; they replace those with the same name."""
        self._planned.update(other._planned)

    def collect(self, dataset: Dataset) -> dict[str, Any]:
        """Return the aggregators' results by name, from one pass over the dataset; no pass if the
        plan is empty.
        """
        aggregates = [planned.aggregate for planned in self._planned.values()]
        return (dataset.aggregate(*aggregates) or {}) if aggregates else {}

    def finish(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """Convert results by name, of at least this plan's aggregators, to statistics."""
        return {
            name: planned.post_process(found.get(name)) for name, planned in self._planned.items()
        }

    def compute(self, dataset: Dataset) -> dict[str, Any]:
        """Return the statistics of a dataset."""
        return self.finish(self.collect(dataset))


class Preprocessor:
    """Learns statistics from a dataset (`fit`) and uses them to transform datasets and batches
    (`transform`, `transform_batch`).

    A subclass calls `super().__init__()` and overrides
      - `_fit(ds)`, which sets `stats_` (or adds to `stat_computation_plan`) and returns self; or
        sets `_is_fittable = False`;
      - one of `_transform_pandas`, `_transform_numpy` and `_transform_arrow`, or several and
        `preferred_batch_format`.
    Instances can be pickled: they hold parameters and statistics, never a dataset.
    """

    class FitStatus(str, Enum):
        """State of fitting."""

        NOT_FITTABLE = "NOT_FITTABLE"
        """The preprocessor has no statistics to learn."""
        NOT_FITTED = "NOT_FITTED"
        PARTIALLY_FITTED = "PARTIALLY_FITTED"
        """Only some members of a `Chain` are fitted."""
        FITTED = "FITTED"

    _is_fittable = True

    def __init__(self) -> None:
        self.stats_: dict[str, Any] = {}
        self._fitted = False

    @property
    def stat_computation_plan(self) -> StatComputationPlan:
        """Aggregators that `fit` runs; `_fit` adds them."""
        plan: StatComputationPlan = self.__dict__.setdefault(
            "_stat_computation_plan", StatComputationPlan()
        )
        return plan

    def fit_status(self) -> FitStatus:
        """Return the state of fitting."""
        if not self._is_fittable:
            return Preprocessor.FitStatus.NOT_FITTABLE
        fitted = getattr(self, "_fitted", False) or self._check_has_fitted_state()
        return Preprocessor.FitStatus.FITTED if fitted else Preprocessor.FitStatus.NOT_FITTED

    def fit(self: SelfT, ds: Dataset) -> SelfT:
        """Learn statistics from a dataset, replacing earlier ones; return the preprocessor.

        Raises:
            UnknownColumnError: A required column is missing.
        """
        status = self.fit_status()
        if status is Preprocessor.FitStatus.NOT_FITTABLE:
            return self
        if status is not Preprocessor.FitStatus.NOT_FITTED:
            warnings.warn(
                f"{type(self).__name__} was fitted before: its statistics are replaced",
                stacklevel=2,
            )
        self._start_fit()
        fitted = self._fit(ds)._fit_execute(ds)
        self._fitted = True
        return fitted  # type: ignore[return-value]  # `_fit` returns self

    def fit_transform(
        self,
        ds: Dataset,
        *,
        transform_num_cpus: float | None = None,
        transform_memory: float | None = None,
        transform_batch_size: int | None = None,
        transform_concurrency: int | None = None,
    ) -> Dataset:
        """Fit to the dataset, then transform it. Arguments: see `transform`."""
        return self._fit_transform(
            ds,
            {
                "batch_size": transform_batch_size,
                "num_cpus": transform_num_cpus,
                "memory": transform_memory,
                "concurrency": transform_concurrency,
            },
        )

    def transform(
        self,
        ds: Dataset,
        *,
        batch_size: int | None = None,
        num_cpus: float | None = None,
        memory: float | None = None,
        concurrency: int | None = None,
    ) -> Dataset:
        """Return the transformed dataset, which is computed lazily.

        Args:
            ds: The dataset.
            batch_size: Rows per call; whole blocks if None.
            num_cpus: CPUs per worker.
            memory: Bytes per worker.
            concurrency: Number of workers.

        Raises:
            PreprocessorNotFittedException: `fit` was not called.
        """
        self._require_fitted("transform")
        return self._transform(
            ds,
            {
                "batch_size": batch_size,
                "num_cpus": num_cpus,
                "memory": memory,
                "concurrency": concurrency,
            },
        )

    def transform_batch(self, data: DataBatch) -> DataBatch:
        """Return the transformed batch; the given one is not changed.

        The result of a DataFrame is a DataFrame. For other batches it depends on the implemented
        method: `_transform_pandas` gives a DataFrame, `_transform_numpy` a dict of ndarrays,
        `_transform_arrow` a table for a table and a DataFrame for a dict.

        Raises:
            PreprocessorNotFittedException: `fit` was not called.
        """
        self._require_fitted("transform_batch")
        return self._transform_batch(data)

    def has_stats(self) -> bool:
        """Return True if there are statistics."""
        return bool(getattr(self, "stats_", None))

    def get_input_columns(self) -> list[str]:
        """Return the names of the input columns; empty if unknown."""
        return list(getattr(self, "_columns", getattr(self, "columns", [])))

    def get_output_columns(self) -> list[str]:
        """Return the names of the output columns; empty if unknown."""
        return list(getattr(self, "_output_columns", getattr(self, "output_columns", [])))

    @classmethod
    def preferred_batch_format(cls) -> BatchFormat:
        """Return the format to use if several `_transform_*` methods are implemented."""
        return BatchFormat.PANDAS

    def serialize(self) -> str | bytes:
        """Serialize the preprocessor to text, for example for the metadata of a checkpoint. It is
        pickled: load only trusted text.
        """
        return base64.b64encode(cloudpickle.dumps(self)).decode("ascii")

    @staticmethod
    def deserialize(serialized: str | bytes) -> Preprocessor:
        """Load the result of `serialize`. Raises ValueError for anything else."""
        try:
            if isinstance(serialized, bytes) and serialized.startswith(_MAGIC):
                loaded = pickle.loads(serialized[len(_MAGIC) :])
            else:
                loaded = pickle.loads(base64.b64decode(serialized, validate=True))
        except Exception as error:
            raise ValueError(
                f"not a serialized preprocessor: {serialized[:40]!r}... ({error})"
            ) from error
        if not isinstance(loaded, Preprocessor):
            raise ValueError(f"expected a serialized preprocessor, got {type(loaded).__name__}")
        return loaded

    # -- methods for subclasses

    def _fit(self, ds: Dataset) -> Preprocessor:
        raise NotImplementedError(
            f"{type(self).__name__} has no _fit: implement it, or set _is_fittable = False"
        )

    def _transform_pandas(self, df: pd.DataFrame) -> pd.DataFrame:
        raise NotImplementedError

    def _transform_numpy(self, np_data: Any) -> Any:
        raise NotImplementedError

    def _transform_arrow(self, table: pa.Table) -> pa.Table:
        raise NotImplementedError

    def _get_transform_config(self) -> dict[str, Any]:
        """Return further arguments of `map_batches`."""
        return {}

    @classmethod
    def _derive_and_validate_output_columns(
        cls, columns: list[str], output_columns: list[str] | None
    ) -> list[str]:
        """Return the output columns; the input columns by default. Raises ValueError if the numbers
        differ.
        """
        if output_columns and len(columns) != len(output_columns):
            raise ValueError(
                f"{len(columns)} columns ({', '.join(columns)}) need as many output_columns, but "
                f"there are {len(output_columns)} ({', '.join(output_columns)})"
            )
        return output_columns or columns

    # -- implementation

    def _fit_transform(self, ds: Dataset, options: TransformOptions) -> Dataset:
        self.fit(ds)
        return self.transform(ds, **options)

    def _start_fit(self) -> None:
        self.stat_computation_plan.reset()
        self.stats_ = {}

    def _fit_execute(self, dataset: Dataset) -> Preprocessor:
        self._learn(self.stat_computation_plan.compute(dataset))
        return self

    def _learn(self, statistics: dict[str, Any]) -> None:
        """Store the statistics of the plan's aggregators."""
        self.stats_ |= statistics

    def _check_has_fitted_state(self) -> bool:
        """Return True if an attribute with a trailing underscore is not empty, where `_fit` may
        store its results.
        """
        return any(name.endswith("_") and bool(value) for name, value in vars(self).items())

    def _require_fitted(self, method: str) -> None:
        if self.fit_status() in (
            Preprocessor.FitStatus.NOT_FITTED,
            Preprocessor.FitStatus.PARTIALLY_FITTED,
        ):
            status = self.fit_status().value.lower().replace("_", " ")
            raise PreprocessorNotFittedException(
                f"{type(self).__name__} is {status}, so it cannot {method}: call fit(dataset) or "
                "fit_transform(dataset) first"
            )

    def _determine_transform_to_use(self) -> BatchFormat:
        methods = {format_: f"_transform_{format_.value}" for format_ in BatchFormat}
        own = [
            format_
            for format_, name in methods.items()
            if getattr(type(self), name) is not getattr(Preprocessor, name)
        ]
        if not own:
            raise NotImplementedError(
                f"{type(self).__name__} implements none of {', '.join(methods.values())}: "
                "implement one"
            )
        return own[0] if len(own) == 1 else self.preferred_batch_format()

    def _transform(self, ds: Dataset, options: TransformOptions) -> Dataset:
        arguments = self._get_transform_config() | {
            name: value for name, value in options.items() if value is not None
        }
        format_ = BatchFormat(self._determine_transform_to_use())
        return ds.map_batches(
            getattr(self, f"_transform_{format_.value}"),
            batch_format="pyarrow" if format_ is BatchFormat.ARROW else format_.value,
            **arguments,
        )

    def _transform_batch(self, data: DataBatch) -> DataBatch:
        if not (isinstance(data, pa.Table | Mapping | np.ndarray) or frames.is_frame(data)):
            raise ValueError(
                "transform_batch takes a DataFrame, a pyarrow.Table or a dict of ndarrays, not "
                f"{type(data).__name__}"
            )
        format_ = self._determine_transform_to_use()
        if format_ == BatchFormat.NUMPY:
            arrays: DataBatch = self._transform_numpy(_arrays(data))
            return arrays
        if isinstance(data, np.ndarray):
            raise ValueError(
                f"{type(self).__name__} needs named columns, not a bare ndarray: pass "
                "{'data': array}"
            )
        if format_ == BatchFormat.PANDAS:
            return self._transform_pandas(_frame(data))
        if isinstance(data, pa.Table):
            return self._transform_arrow(data)
        return self._transform_frame_with_arrow(_frame(data))

    def _transform_frame_with_arrow(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Convert only the input columns to Arrow, and only the output columns back: the others
        keep their pandas types.
        """
        self._check_columns(list(frame.columns))
        inputs = [
            name for name in self.get_input_columns() or frame.columns if name in frame.columns
        ]
        table = blocks.from_columns(
            {name: frames.from_series(name, frame[name]) for name in inputs}, len(frame)
        )
        result = self._transform_arrow(table)
        if result.num_rows != len(frame):
            raise ValueError(
                f"{type(self).__name__}._transform_arrow returned {result.num_rows} rows for "
                f"{len(frame)}: it must return one per row, in order"
            )
        dropped = [name for name in inputs if name not in result.column_names]
        written = frames.to_frame(
            result.select(self.get_output_columns() or result.column_names)
        ).set_index(frame.index)
        changed: pd.DataFrame = frame.drop(columns=dropped).assign(
            **{name: written[name] for name in written.columns}
        )
        return changed

    def _check_columns(self, names: Sequence[str]) -> None:
        """Raise an error if a required column is not in the batch."""

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value for name, value in vars(self).items() if name != "_stat_computation_plan"
        }


class SerializablePreprocessorBase(Preprocessor):
    """Base class of the library's preprocessors, which are serialized as bytes."""

    def serialize(self) -> bytes:
        """Serialize the preprocessor to bytes. It is pickled: load only trusted bytes."""
        pickled: bytes = cloudpickle.dumps(self)
        return _MAGIC + pickled


def _frame(data: DataBatch) -> pd.DataFrame:
    """Return the batch as a new DataFrame, whose columns may be replaced."""
    frame: pd.DataFrame = (
        data.copy(deep=False) if frames.is_frame(data) else frames.to_frame(blocks.from_batch(data))
    )
    return frame


def _arrays(data: DataBatch) -> DataBatch:
    """Return the batch as a new dict of ndarrays; a bare ndarray is returned as it is."""
    if isinstance(data, np.ndarray):
        return data
    if isinstance(data, Mapping):
        return dict(data)
    arrays: DataBatch = blocks.to_batch(blocks.from_batch(data), "numpy")
    return arrays
