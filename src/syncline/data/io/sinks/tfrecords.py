"""Writing TFRecord files of `tf.train.Example` messages, without TensorFlow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from syncline.data.columnar.accessor import BlockAccessor
from syncline.data.io.sinks.file_datasink import BlockBasedFileDatasink
from syncline.data.io.sources.tfrecords import FeatureKind, encode_examples, kinds_from_schema
from syncline.runs.event_file import record


class TFRecordDatasink(BlockBasedFileDatasink):
    """Writes an Example for each row.

    Args:
        path: The directory. tf_schema: A `tensorflow_metadata` Schema that says the kind of every
        column; found from the columns' types if None. file_format: Extension of the names.
        file_datasink_kwargs: As `BlockBasedFileDatasink` takes them.
    """

    def __init__(
        self,
        path: str,
        *,
        tf_schema: Any = None,
        file_format: str = "tfrecords",
        **file_datasink_kwargs: Any,
    ) -> None:
        super().__init__(path, file_format=file_format, **file_datasink_kwargs)
        self._kinds: dict[str, FeatureKind] | None = kinds_from_schema(tf_schema)

    def write_block_to_file(self, block: BlockAccessor, file: pa.NativeFile) -> None:
        """One file of records."""
        for message in encode_examples(block.to_arrow(), self._kinds):
            file.write(record(message))
