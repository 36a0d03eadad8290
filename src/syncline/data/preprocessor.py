"""Preprocessors: what is learned from a dataset in one pass, and applied to datasets and to
batches.

Covered: the base class with the life of a preprocessor (fit, transform, serialize), and the plan of
aggregators that a fit runs. The preprocessors that come with the library are in `preprocessors/`.
"""

from __future__ import annotations

import base64
import pickle
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import cloudpickle
import numpy as np
import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.columnar import frames
from syncline.data.columnar.aggregate import AggregateFn

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
_MAGIC = b"CPKL:"


class BatchFormat(str, Enum):
    """What a `_transform_*` method works on."""

    PANDAS = "pandas"
    ARROW = "arrow"
    NUMPY = "numpy"


class PreprocessorNotFittedException(RuntimeError):
    """A preprocessor was asked to transform before it was fitted."""


@dataclass(frozen=True)
class _Planned:
    aggregate: AggregateFn
    post_process: Callable[[Any], Any]


class StatComputationPlan:
    """The aggregators that a fit needs; all run in one pass over the dataset."""

    def __init__(self) -> None:
        self._planned: dict[str, _Planned] = {}

    def reset(self) -> None:
        """Forget all aggregators."""
        self._planned.clear()

    def add_aggregator(
        self,
        *,
        aggregator_fn: Callable[[str], AggregateFn],
        columns: Sequence[str],
        post_process_fn: Callable[[Any], Any] = lambda value: value,
    ) -> None:
        """Plan one aggregator per column.

        Args:
            aggregator_fn: From a column's name to its aggregator, whose name becomes the key of the
                statistic.
            columns: Names of the columns.
            post_process_fn: From the aggregator's result, None where there were no rows, to the
                statistic.
        """
        for column in columns:
            aggregate = aggregator_fn(column)
            self._planned[aggregate.name] = _Planned(aggregate, post_process_fn)

    def include(self, other: StatComputationPlan) -> None:
        """Plan the other plan's aggregators, too; of two with one name the later one counts."""
        self._planned.update(other._planned)

    def collect(self, dataset: Dataset) -> dict[str, Any]:
        """The aggregators' results by name, from one pass over the dataset; from none if nothing is
        planned.
        """
        aggregates = [planned.aggregate for planned in self._planned.values()]
        return (dataset.aggregate(*aggregates) or {}) if aggregates else {}

    def finish(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """The statistics, from the results of at least this plan's aggregators by name."""
        return {
            name: planned.post_process(found.get(name)) for name, planned in self._planned.items()
        }

    def compute(self, dataset: Dataset) -> dict[str, Any]:
        """The statistics of a dataset."""
        return self.finish(self.collect(dataset))


class Preprocessor:
    """Learns from a dataset (`fit`) and changes datasets and batches by what it learned
    (`transform`, `transform_batch`).

    To write one, call `super().__init__()` and override
      - `_fit(ds)`, which sets `stats_` (or adds to `stat_computation_plan`) and returns self; or
        set `_is_fittable = False`;
      - one of `_transform_pandas`, `_transform_numpy` and `_transform_arrow`, or several and
        `preferred_batch_format`.
    Instances are plain to pickle: they hold parameters and statistics, never a dataset.
    """

    class FitStatus(str, Enum):
        """How far a preprocessor is fitted."""

        NOT_FITTABLE = "NOT_FITTABLE"
        """It has nothing to learn."""
        NOT_FITTED = "NOT_FITTED"
        PARTIALLY_FITTED = "PARTIALLY_FITTED"
        """Some members of a `Chain` are fitted and some are not yet."""
        FITTED = "FITTED"

    _is_fittable = True

    def __init__(self) -> None:
        self.stats_: dict[str, Any] = {}
        self._fitted = False

    @property
    def stat_computation_plan(self) -> StatComputationPlan:
        """The aggregators that `fit` runs; `_fit` adds them."""
        plan: StatComputationPlan = self.__dict__.setdefault(
            "_stat_computation_plan", StatComputationPlan()
        )
        return plan

    def fit_status(self) -> FitStatus:
        """Whether it can be fitted, and is."""
        if not self._is_fittable:
            return Preprocessor.FitStatus.NOT_FITTABLE
        fitted = getattr(self, "_fitted", False) or self._check_has_fitted_state()
        return Preprocessor.FitStatus.FITTED if fitted else Preprocessor.FitStatus.NOT_FITTED

    def fit(self: SelfT, ds: Dataset) -> SelfT:
        """Learn from a dataset, in place of all that was learned before; returns the preprocessor.

        Raises:
            UnknownColumnError: The dataset lacks a column that is needed.
        """
        status = self.fit_status()
        if status is Preprocessor.FitStatus.NOT_FITTABLE:
            return self
        if status is not Preprocessor.FitStatus.NOT_FITTED:
            warnings.warn(
                f"{type(self).__name__} was fitted before: what it learned then is replaced",
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
        """Fit to the dataset, then transform it; the arguments are those of `transform`."""
        return self._fit_transform(
            ds,
            batch_size=transform_batch_size,
            num_cpus=transform_num_cpus,
            memory=transform_memory,
            concurrency=transform_concurrency,
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
        """The dataset, transformed lazily.

        Args:
            ds: The dataset.
            batch_size: Rows per call, whole blocks if None.
            num_cpus: CPUs per worker.
            memory: Bytes per worker.
            concurrency: Number of workers.

        Raises:
            PreprocessorNotFittedException: `fit` was not called.
        """
        self._require_fitted("transform")
        return self._transform(ds, batch_size, num_cpus, memory, concurrency)

    def transform_batch(self, data: DataBatch) -> DataBatch:
        """One batch, transformed; the given one is left as it is.

        A DataFrame gives a DataFrame. For other batches the result depends on the method that is
        implemented: `_transform_pandas` gives a DataFrame, `_transform_numpy` a dict of ndarrays,
        `_transform_arrow` a table for a table and a DataFrame for a dict.

        Raises:
            PreprocessorNotFittedException: `fit` was not called.
        """
        self._require_fitted("transform_batch")
        return self._transform_batch(data)

    def has_stats(self) -> bool:
        """Whether there are statistics."""
        return bool(getattr(self, "stats_", None))

    def get_input_columns(self) -> list[str]:
        """Names of the columns that it reads; empty if it does not say."""
        return list(getattr(self, "_columns", getattr(self, "columns", [])))

    def get_output_columns(self) -> list[str]:
        """Names of the columns that it writes; empty if it does not say."""
        return list(getattr(self, "_output_columns", getattr(self, "output_columns", [])))

    @classmethod
    def preferred_batch_format(cls) -> BatchFormat:
        """What to work on if several `_transform_*` methods are implemented."""
        return BatchFormat.PANDAS

    def serialize(self) -> str | bytes:
        """The preprocessor as text, for example for a checkpoint's metadata. Pickled: load only
        what you trust.
        """
        return base64.b64encode(cloudpickle.dumps(self)).decode("ascii")

    @staticmethod
    def deserialize(serialized: str | bytes) -> Preprocessor:
        """The preprocessor from what `serialize` gave. ValueError for anything else."""
        try:
            if isinstance(serialized, bytes) and serialized.startswith(_MAGIC):
                loaded = pickle.loads(serialized[len(_MAGIC) :])
            else:
                loaded = pickle.loads(base64.b64decode(serialized, validate=True))
        except Exception as error:
            raise ValueError(
                f"this is no serialized preprocessor: {serialized[:40]!r}... ({error})"
            ) from error
        if not isinstance(loaded, Preprocessor):
            raise ValueError(f"this is a serialized {type(loaded).__name__}, not a preprocessor")
        return loaded

    # -- for subclasses

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
        """Further arguments for `map_batches`."""
        return {}

    @classmethod
    def _derive_and_validate_output_columns(
        cls, columns: list[str], output_columns: list[str] | None
    ) -> list[str]:
        """The output columns, by default the input columns. ValueError if there are more or fewer
        of them.
        """
        if output_columns and len(columns) != len(output_columns):
            raise ValueError(
                f"{len(columns)} columns ({', '.join(columns)}) need as many output_columns, but there are {len(output_columns)} "
                f"({', '.join(output_columns)})"
            )
        return output_columns or columns

    # -- how the parts meet

    def _fit_transform(self, ds: Dataset, **options: Any) -> Dataset:
        """The options are those of `transform`."""
        self.fit(ds)
        return self.transform(ds, **options)

    def _start_fit(self) -> None:
        self.stat_computation_plan.reset()
        self.stats_ = {}

    def _fit_execute(self, dataset: Dataset) -> Preprocessor:
        self._learn(self.stat_computation_plan.compute(dataset))
        return self

    def _learn(self, statistics: dict[str, Any]) -> None:
        """Takes the statistics of the plan's aggregators."""
        self.stats_ |= statistics

    def _check_has_fitted_state(self) -> bool:
        """Whether an attribute with a trailing underscore holds something, which is how `_fit` may
        leave what it learned.
        """
        return any(name.endswith("_") and bool(value) for name, value in vars(self).items())

    def _require_fitted(self, method: str) -> None:
        if self.fit_status() in (
            Preprocessor.FitStatus.NOT_FITTED,
            Preprocessor.FitStatus.PARTIALLY_FITTED,
        ):
            raise PreprocessorNotFittedException(
                f"{type(self).__name__} is {self.fit_status().value.lower().replace('_', ' ')}, so it cannot {method}: "
                "call fit(dataset) or fit_transform(dataset) before"
            )

    def _determine_transform_to_use(self) -> BatchFormat:
        methods = {
            "_transform_pandas": BatchFormat.PANDAS,
            "_transform_numpy": BatchFormat.NUMPY,
            "_transform_arrow": BatchFormat.ARROW,
        }
        own = [
            format_
            for name, format_ in methods.items()
            if getattr(type(self), name) is not getattr(Preprocessor, name)
        ]
        if not own:
            raise NotImplementedError(
                f"{type(self).__name__} implements none of {', '.join(methods)}: implement one"
            )
        return own[0] if len(own) == 1 else self.preferred_batch_format()

    def _transform(
        self,
        ds: Dataset,
        batch_size: int | None,
        num_cpus: float | None,
        memory: float | None,
        concurrency: int | None,
    ) -> Dataset:
        given = {
            "batch_size": batch_size,
            "num_cpus": num_cpus,
            "memory": memory,
            "concurrency": concurrency,
        }
        options = self._get_transform_config() | {
            name: value for name, value in given.items() if value is not None
        }
        format_ = self._determine_transform_to_use()
        if format_ == BatchFormat.PANDAS:
            return ds.map_batches(self._transform_pandas, batch_format="pandas", **options)
        if format_ == BatchFormat.NUMPY:
            return ds.map_batches(self._transform_numpy, batch_format="numpy", **options)
        return ds.map_batches(self._transform_arrow, batch_format="pyarrow", **options)

    def _transform_batch(self, data: DataBatch) -> DataBatch:
        if not (isinstance(data, pa.Table | Mapping | np.ndarray) or frames.is_frame(data)):
            raise ValueError(
                f"transform_batch takes a DataFrame, a pyarrow.Table or a dict of ndarrays, not {type(data).__name__}"
            )
        format_ = self._determine_transform_to_use()
        if format_ == BatchFormat.NUMPY:
            arrays: DataBatch = self._transform_numpy(_arrays(data))
            return arrays
        if isinstance(data, np.ndarray):
            raise ValueError(
                f"{type(self).__name__} works on named columns, not on a bare ndarray: give it a name, {{'data': array}}"
            )
        if format_ == BatchFormat.PANDAS:
            return self._transform_pandas(_frame(data))
        if isinstance(data, pa.Table):
            return self._transform_arrow(data)
        return self._transform_frame_with_arrow(_frame(data))

    def _transform_frame_with_arrow(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Only the columns that are read become Arrow, and only those that are written come back:
        the others keep their pandas types.
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
                f"{type(self).__name__}._transform_arrow made {result.num_rows} rows of {len(frame)}: it must return one per row, in order"
            )
        gone = [name for name in inputs if name not in result.column_names]
        written = frames.to_frame(
            result.select(self.get_output_columns() or result.column_names)
        ).set_index(frame.index)
        changed: pd.DataFrame = frame.drop(columns=gone).assign(
            **{name: written[name] for name in written.columns}
        )
        return changed

    def _check_columns(self, names: Sequence[str]) -> None:
        """Raises if columns that are needed are not among those of the batch."""

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value for name, value in vars(self).items() if name != "_stat_computation_plan"
        }


class SerializablePreprocessorBase(Preprocessor):
    """Base of the preprocessors that come with the library: serialized as bytes."""

    def serialize(self) -> bytes:
        """The preprocessor as bytes. Pickled: load only what you trust."""
        pickled: bytes = cloudpickle.dumps(self)
        return _MAGIC + pickled


def _frame(data: Any) -> pd.DataFrame:
    """The batch as a DataFrame of its own, whose columns may be replaced."""
    return (
        data.copy(deep=False) if frames.is_frame(data) else frames.to_frame(blocks.from_batch(data))
    )


def _arrays(data: Any) -> Any:
    """The batch as a dict of ndarrays of its own; a bare ndarray stays."""
    if isinstance(data, np.ndarray):
        return data
    return (
        dict(data)
        if isinstance(data, Mapping)
        else blocks.to_batch(blocks.from_batch(data), "numpy")
    )
