"""The names of `ray.data.datasource`: what programs need to bring sources, sinks, partitions and
file names of their own.
"""

from syncline.data.accessor import BlockAccessor
from syncline.data.sinks.datasink import (
    Datasink,
    SaveMode,
    TaskContext,
    WriteResult,
    WriteReturnType,
)
from syncline.data.sinks.file_datasink import BlockBasedFileDatasink, RowBasedFileDatasink
from syncline.data.sinks.filename_provider import FilenameProvider
from syncline.data.sources.datasource import BlockMetadata, Datasource, ReadTask
from syncline.data.sources.file_based import FileBasedDatasource
from syncline.data.sources.files import FileShuffleConfig
from syncline.data.sources.partitioning import (
    Partitioning,
    PartitionStyle,
    PathPartitionFilter,
    PathPartitionParser,
)
from syncline.data.sources.sql import Connection

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
    "ReadTask",
    "RowBasedFileDatasink",
    "SaveMode",
    "TaskContext",
    "WriteResult",
    "WriteReturnType",
]
