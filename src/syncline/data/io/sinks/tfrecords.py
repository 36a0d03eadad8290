"""Write TFRecord files of `tf.train.Example` messages, without TensorFlow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from syncline.data.columnar.block import BlockAccessor
from syncline.data.io.sinks.file_datasink import BlockBasedFileDatasink, BlockFileDatasinkOptions
from syncline.data.io.sources.tfrecords import FeatureKind, encode_examples, kinds_from_schema
from syncline.runs.event_file import record

if TYPE_CHECKING:
    from typing_extensions import Unpack


class TFRecordDatasink(BlockBasedFileDatasink):
    """Writes an Example for each row.

    Args:
        path: The directory.
        tf_schema: A `tensorflow_metadata` Schema with the kind of every column; inferred from the
            types of the columns if None.
        options: See `BlockBasedFileDatasink`.
    """

    _FILE_FORMAT = "tfrecords"

    def __init__(
        self, path: str, *, tf_schema: object = None, **options: Unpack[BlockFileDatasinkOptions]
    ) -> None:
        super().__init__(path, **options)
        self._kinds: dict[str, FeatureKind] | None = kinds_from_schema(tf_schema)

    def write_block_to_file(self, block: BlockAccessor, file: pa.NativeFile) -> None:
        for message in encode_examples(block.to_arrow(), self._kinds):
            file.write(record(message))
