"""Write TFRecord files of `tf.train.Example` messages, without TensorFlow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from syncline.data.columnar.block import BlockAccessor
from syncline.data.io.sinks.file_datasink import BlockBasedFileDatasink
from syncline.data.io.sources.tfrecords import FeatureKind, encode_examples, kinds_from_schema
from syncline.runs.event_file import record


class TFRecordDatasink(BlockBasedFileDatasink):
    """Writes an Example for each row; arguments as in `Dataset.write_tfrecords`."""

    _FILE_FORMAT = "tfrecords"

    def __init__(self, path: str, *, tf_schema: object = None, **options: Any) -> None:
        super().__init__(path, **options)
        self._kinds: dict[str, FeatureKind] | None = kinds_from_schema(tf_schema)

    def write_block_to_file(self, block: BlockAccessor, file: pa.NativeFile) -> None:
        for message in encode_examples(block.to_arrow(), self._kinds):
            file.write(record(message))
