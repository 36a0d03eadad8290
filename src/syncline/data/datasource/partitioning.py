"""The names of `ray.data.datasource.partitioning`; they are defined in `io.sources`."""

from syncline.data.io.sources.partitioning import (
    Partitioning,
    PartitionStyle,
    PathPartitionFilter,
    PathPartitionParser,
)

__all__ = ["PartitionStyle", "Partitioning", "PathPartitionFilter", "PathPartitionParser"]
