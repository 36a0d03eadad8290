"""`Dataset` and `MaterializedDataset`: what programs hold.

A dataset is a plan (`plan.nodes`) and a copy of the settings at the time of its creation, and
nothing changes either: every method returns a new dataset, or executes the plan. What the methods
do, by theme, is in `methods/`, `writing` and `converting`.
"""

from __future__ import annotations

from collections.abc import Sequence

import cloudpickle

from syncline.core.refs import ObjectRef
from syncline.data.columnar.schema_handle import Schema
from syncline.data.context import DataContext
from syncline.data.converting import ConvertingMixin
from syncline.data.methods.aggregating import AggregatingMethods
from syncline.data.methods.columns import ColumnMethods
from syncline.data.methods.combining import CombiningMethods
from syncline.data.methods.ordering import OrderingMethods
from syncline.data.methods.splitting import SplittingMethods
from syncline.data.plan.nodes import Held, HeldBlock, Node, walk
from syncline.data.writing import WritingMixin

__all__ = ["Dataset", "MaterializedDataset", "Schema"]


class Dataset(
    ColumnMethods,
    OrderingMethods,
    CombiningMethods,
    AggregatingMethods,
    SplittingMethods,
    WritingMixin,
    ConvertingMixin,
):
    """Rows of named, typed columns, that are computed when they are asked for, block by block.

    Made by `read_*`, `from_*` and `range`. It can be passed to tasks and actors, where it is the
    same plan.
    """

    def has_serializable_lineage(self) -> bool:
        """Whether the plan goes back to sources that other programs can read too, not to blocks in
        this one's object store.
        """
        return not any(
            isinstance(block.value, ObjectRef)
            for node in walk(self._node)
            if isinstance(node, Held)
            for block in node.blocks
        )

    def serialize_lineage(self) -> bytes:
        """The plan and the settings, for `deserialize_lineage` in any program. ValueError without a
        serializable lineage.
        """
        if not self.has_serializable_lineage():
            raise ValueError(
                "the dataset is made of blocks in this program's object store, which others cannot read: write it to files"
            )
        serialized: bytes = cloudpickle.dumps(self)
        return serialized

    @staticmethod
    def deserialize_lineage(serialized_ds: bytes) -> Dataset:
        """The dataset that `serialize_lineage` was called on."""
        dataset = cloudpickle.loads(serialized_ds)
        if not isinstance(dataset, Dataset):
            raise TypeError(
                f"these bytes hold a {type(dataset).__name__}: give what serialize_lineage returned"
            )
        return dataset

    def _derive(self, node: Node) -> Dataset:
        return Dataset(node, self._context)

    @staticmethod
    def _of_blocks(blocks: Sequence[HeldBlock], context: DataContext) -> MaterializedDataset:
        return MaterializedDataset(Held(blocks=tuple(blocks)), context)


class MaterializedDataset(Dataset):
    """A dataset whose blocks exist, in memory or in the object store."""

    def num_blocks(self) -> int:
        """Number of blocks."""
        assert isinstance(self._node, Held)
        return len(self._node.blocks)
