"""The expression that fetches files: `download("uri")` is the content of each file that a column
names.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from syncline.data.columnar.datatype import DataType
from syncline.data.columnar.expressions import kernels
from syncline.data.columnar.expressions.expr import ColumnExpr, EvaluationContext, Expr
from syncline.data.columnar.expressions.kernels import Value
from syncline.data.columnar.expressions.operations import ATOM
from syncline.data.io import filesystem as filesystems

logger = logging.getLogger(__name__)

# Fetching waits for the network far more than it computes.
_THREADS = 16


@dataclass(frozen=True, eq=False, repr=False)
class DownloadExpr(Expr):
    """The bytes of the files that an expression names; null where it is null or the file cannot be
    read.
    """

    uri: Expr
    filesystem: Any = None

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.uri,)

    @property
    def uri_column_name(self) -> str | None:
        """The column with the URIs."""
        return self.uri.name

    @property
    def data_type(self) -> DataType:
        return DataType(pa.binary())

    def _own(self) -> tuple[Any, ...]:
        return (self.filesystem,)

    def _with_children(self, children: tuple[Expr, ...]) -> Expr:
        return DownloadExpr(children[0], self.filesystem)

    def _compute(
        self, values: tuple[Value, ...], table: pa.Table, context: EvaluationContext
    ) -> Value:
        uris = values[0]
        if not pa.types.is_string(uris.type) and not pa.types.is_large_string(uris.type):
            raise TypeError(
                f"{self!r} needs a column of paths or URIs, but {self.uri!r} is {uris.type}"
            )
        if not len(uris):
            return pa.array([], pa.binary())
        with ThreadPoolExecutor(min(_THREADS, len(uris)), "syncline-download") as threads:
            contents = list(threads.map(self._fetch, kernels.one_chunk(uris).to_pylist()))
        return pa.array(contents, pa.binary())

    def _fetch(self, uri: str | None) -> bytes | None:
        if uri is None:
            return None
        try:
            found, (path,) = filesystems.resolve(uri, self.filesystem)
            with found.open_input_stream(path) as stream:
                content: bytes = stream.read()
        except (OSError, ValueError) as error:
            logger.warning("%r could not be downloaded and is null: %s", uri, error)
            return None
        return content

    def _text(self) -> tuple[str, int]:
        return f"download({self.uri_column_name!r})", ATOM


def download(uri_column_name: str, *, filesystem: Any = None) -> DownloadExpr:
    """The content, as bytes, of the file that each row of a column names by a path or URI.

    Files that cannot be read are null, with a warning in the log. `filesystem` is a pyarrow or
    fsspec one; found from each URI if None.
    """
    return DownloadExpr(ColumnExpr(uri_column_name), filesystem)
