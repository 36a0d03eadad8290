"""All names of `syncline.data`; the package loads this module on first use."""

from syncline.data.columnar.aggregate.summary import DatasetSummary
from syncline.data.columnar.block import Block
from syncline.data.columnar.datatype import DataType
from syncline.data.columnar.schemas import SchemaMismatchError, UnknownColumnError
from syncline.data.context import DataContext, ExecutionOptions, ExecutionResources
from syncline.data.dataset import Dataset, MaterializedDataset, Schema
from syncline.data.datasource import (
    BlockBasedFileDatasink,
    Datasink,
    Datasource,
    FileShuffleConfig,
    ReadTask,
    RowBasedFileDatasink,
    SaveMode,
)
from syncline.data.from_memory import (
    from_arrow,
    from_arrow_refs,
    from_blocks,
    from_daft,
    from_dask,
    from_huggingface,
    from_items,
    from_mars,
    from_modin,
    from_numpy,
    from_numpy_refs,
    from_pandas,
    from_pandas_refs,
    from_spark,
    from_tf,
    from_torch,
)
from syncline.data.iterator import DataIterator
from syncline.data.plan.build import MixStoppingCondition
from syncline.data.plan.compute import ActorPoolStrategy, TaskPoolStrategy
from syncline.data.plan.nodes import RandomSeedConfig
from syncline.data.preprocessor import Preprocessor
from syncline.data.read import (
    range,
    range_tensor,
    read_audio,
    read_avro,
    read_binary_files,
    read_csv,
    read_datasource,
    read_images,
    read_json,
    read_lance,
    read_numpy,
    read_orc,
    read_parquet,
    read_sql,
    read_text,
    read_tfrecords,
    read_videos,
    read_webdataset,
)
from syncline.data.read_shards import read_litdata, read_mds
from syncline.data.read_tables import read_delta, read_iceberg, read_kafka, read_mongo, read_zarr

# Older names.
DatasetContext = DataContext
DatasetIterator = DataIterator
NodeIdStr = str
"""Id of a node, for `locality_hints`."""

__all__ = [
    "ActorPoolStrategy",
    "Block",
    "BlockBasedFileDatasink",
    "DataContext",
    "DataIterator",
    "DataType",
    "Dataset",
    "DatasetContext",
    "DatasetIterator",
    "DatasetSummary",
    "Datasink",
    "Datasource",
    "ExecutionOptions",
    "ExecutionResources",
    "FileShuffleConfig",
    "MaterializedDataset",
    "MixStoppingCondition",
    "NodeIdStr",
    "Preprocessor",
    "RandomSeedConfig",
    "ReadTask",
    "RowBasedFileDatasink",
    "SaveMode",
    "Schema",
    "SchemaMismatchError",
    "TaskPoolStrategy",
    "UnknownColumnError",
    "from_arrow",
    "from_arrow_refs",
    "from_blocks",
    "from_daft",
    "from_dask",
    "from_huggingface",
    "from_items",
    "from_mars",
    "from_modin",
    "from_numpy",
    "from_numpy_refs",
    "from_pandas",
    "from_pandas_refs",
    "from_spark",
    "from_tf",
    "from_torch",
    "range",
    "range_tensor",
    "read_audio",
    "read_avro",
    "read_binary_files",
    "read_csv",
    "read_datasource",
    "read_delta",
    "read_iceberg",
    "read_images",
    "read_json",
    "read_kafka",
    "read_lance",
    "read_litdata",
    "read_mds",
    "read_mongo",
    "read_numpy",
    "read_orc",
    "read_parquet",
    "read_sql",
    "read_text",
    "read_tfrecords",
    "read_videos",
    "read_webdataset",
    "read_zarr",
]
