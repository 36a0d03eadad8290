"""`Chain`: several preprocessors applied in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.data.preprocessor import (
    BatchFormat,
    Preprocessor,
    SerializablePreprocessorBase,
    StatComputationPlan,
    TransformOptions,
)
from syncline.data.preprocessors.base import ColumnPreprocessor

if TYPE_CHECKING:
    from syncline.data.dataset import Dataset
    from syncline.data.preprocessor import DataBatch


class Chain(SerializablePreprocessorBase):
    """Applies preprocessors in order; each is fitted on the output of those before it.

    Adjacent preprocessors without common columns are fitted in one pass over the dataset.

    Args:
        *preprocessors: The preprocessors, in order.
    """

    def __init__(self, *preprocessors: Preprocessor) -> None:
        super().__init__()
        self._preprocessors = preprocessors

    @property
    def preprocessors(self) -> tuple[Preprocessor, ...]:
        """The preprocessors, in order."""
        return self._preprocessors

    def fit_status(self) -> Preprocessor.FitStatus:
        """NOT_FITTABLE if no member is fittable, FITTED if all fittable members are fitted,
        PARTIALLY_FITTED if some are.
        """
        fittable = {
            status
            for member in self._preprocessors
            if (status := member.fit_status()) is not Preprocessor.FitStatus.NOT_FITTABLE
        }
        if not fittable:
            return Preprocessor.FitStatus.NOT_FITTABLE
        return fittable.pop() if len(fittable) == 1 else Preprocessor.FitStatus.PARTIALLY_FITTED

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._preprocessors))})"

    def _start_fit(self) -> None:
        """Do nothing: the members hold the statistics."""

    def _fit(self, ds: Dataset) -> Chain:
        self._fit_transform(ds, {})
        return self

    def _fit_transform(self, ds: Dataset, options: TransformOptions) -> Dataset:
        """Fit all members; return the dataset transformed by all of them."""
        group: list[Preprocessor] = []
        used: set[str] = set()
        for member in self._preprocessors:
            columns = _columns_of(member)
            if columns is None or columns & used:
                ds = _fit_and_transform(group, ds, options)
                group, used = [], set()
            if columns is None:
                ds = member.fit(ds).transform(ds, **options)
            else:
                group.append(member)
                used |= columns
        return _fit_and_transform(group, ds, options)

    def _transform(self, ds: Dataset, options: TransformOptions) -> Dataset:
        for member in self._preprocessors:
            ds = member.transform(ds, **options)
        return ds

    def _transform_batch(self, data: DataBatch) -> DataBatch:
        for member in self._preprocessors:
            data = member.transform_batch(data)
        return data

    def _determine_transform_to_use(self) -> BatchFormat:
        """Return the format of the first member, which gets the batches."""
        return self._preprocessors[0]._determine_transform_to_use()


def _columns_of(member: Preprocessor) -> set[str] | None:
    """Return the columns that a member reads or writes; None if it may use others, or does not fit
    by aggregators alone.
    """
    plans_only = (
        isinstance(member, ColumnPreprocessor) and type(member)._fit is ColumnPreprocessor._fit
    )
    if not plans_only or type(member)._fit_execute is not Preprocessor._fit_execute:
        return None
    return {*member.get_input_columns(), *member.get_output_columns()}


def _fit_and_transform(
    members: list[Preprocessor], ds: Dataset, options: TransformOptions
) -> Dataset:
    """Fit members without common columns in one pass; return the dataset transformed by them."""
    fittable = [
        member
        for member in members
        if member.fit_status() is not Preprocessor.FitStatus.NOT_FITTABLE
    ]
    combined = StatComputationPlan()
    for member in fittable:
        member._start_fit()
        member._fit(ds)
        combined.include(member.stat_computation_plan)
    found = combined.collect(ds)
    for member in fittable:
        member._learn(member.stat_computation_plan.finish(found))
        member._fitted = True
    for member in members:
        ds = member.transform(ds, **options)
    return ds
