"""The names of `ray.data.datasource`, for custom sources, sinks, partitions and file names; they
are defined in `io`.

The modules have Ray's paths: `datasource` and `file_based_datasource` (sources), `partitioning`,
`datasink` and `file_datasink` (sinks), `filename_provider`.
"""

from syncline.data.columnar.block import BlockAccessor
from syncline.data.io.sinks.datasink import (
    Datasink,
    SaveMode,
    TaskContext,
    WriteResult,
    WriteReturnType,
)
from syncline.data.io.sinks.file_datasink import (
    BlockBasedFileDatasink,
    FilenameProvider,
    RowBasedFileDatasink,
)
from syncline.data.io.sources.datasource import BlockMetadata, Datasource, ReadTask
from syncline.data.io.sources.file_based_datasource import FileBasedDatasource
from syncline.data.io.sources.file_listing import FileShuffleConfig
from syncline.data.io.sources.partitioning import (
    Partitioning,
    PartitionStyle,
    PathPartitionFilter,
    PathPartitionParser,
)
from syncline.data.io.sources.range import RandomIntRowDatasource, RangeDatasource
from syncline.data.io.sources.sql import Connection

__all__ = [
    "BlockAccessor",
    "BlockBasedFileDatasink",
    "BlockMetadata",
    "Connection",
    "Datasink",
    "Datasource",
    "FileBasedDatasource",
    "FileShuffleConfig",
    "FilenameProvider",
    "PartitionStyle",
    "Partitioning",
    "PathPartitionFilter",
    "PathPartitionParser",
    "RandomIntRowDatasource",
    "RangeDatasource",
    "ReadTask",
    "RowBasedFileDatasink",
    "SaveMode",
    "TaskContext",
    "WriteResult",
    "WriteReturnType",
]
