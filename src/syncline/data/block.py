"""The names of `ray.data.block`; they are defined in `columnar.block` and `io.sources`."""

from syncline.data.columnar.block import BatchFormat, Block, BlockAccessor
from syncline.data.io.sources.datasource import BlockMetadata

__all__ = ["BatchFormat", "Block", "BlockAccessor", "BlockMetadata"]
