"""Reading TFRecord files of `tf.train.Example` messages, without TensorFlow; checksums are
verified.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pyarrow as pa

from syncline.data.sources.file_based import FileBasedDatasource
from syncline.data.sources.tfexample import decode_examples, example_class, kinds_from_schema
from syncline.data.sources.tfrecord_framing import records

_ROWS_PER_BLOCK = 1024


class TFRecordDatasource(FileBasedDatasource):
    """Reads Examples.

    Args:
        paths: As `FileBasedDatasource` takes them. tf_schema: A `tensorflow_metadata` Schema: every
        feature it names is a column of lists of its kind, and there are no others.
        file_based_datasource_kwargs: As `FileBasedDatasource` takes them.
    """

    _FILE_EXTENSIONS = ["tfrecords"]

    def __init__(
        self, paths: Any, tf_schema: Any = None, **file_based_datasource_kwargs: Any
    ) -> None:
        example_class()  # ImportError here and not on a worker
        super().__init__(paths, **file_based_datasource_kwargs)
        self._kinds = kinds_from_schema(tf_schema)

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        contents = records(f, path)
        while batch := list(islice(contents, _ROWS_PER_BLOCK)):
            yield decode_examples(batch, self._kinds, path)

    def _options(self) -> object:
        return (self._open_stream_args, self._kinds)
