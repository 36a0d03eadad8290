"""`read_mds` and `read_litdata`: datasets that MosaicML Streaming and LitData have written.

Both read the shards directly, on any filesystem, without those libraries. Training resumes exactly
on them, as on any dataset, also with another number of workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.data.dataset import Dataset
from syncline.data.io.sources.litdata import LitDataDatasource
from syncline.data.io.sources.mds import MDSDatasource
from syncline.data.options import FILES, FileOptions, keywords, source_arguments
from syncline.data.read import Paths, read

if TYPE_CHECKING:
    from typing_extensions import Unpack

_WITHOUT = ("arrow_open_stream_args", "ignore_missing_paths", "file_extensions")


@keywords(FILES, without=_WITHOUT)
def read_mds(
    paths: Paths,
    *,
    columns: list[str] | None = None,
    allow_pickle: bool = False,
    **options: Unpack[FileOptions],
) -> Dataset:
    """Read MDS shards, which MosaicML Streaming's `MDSWriter` has written.

    Args:
        paths: Folders that contain `index.json` and its shards.
        columns: Names of the columns to read, in this order; None for all.
        allow_pickle: Read columns with the encoding `pkl`. This runs code from the files.
        options: `FileOptions`. `shuffle="files"` reads the shards in a new random order in each
            epoch; for the order of rows use `random_shuffle` or `local_shuffle_buffer_size`.

    Raises:
        FileNotFoundError: A folder has no index.
        ValueError: The index is of another version, the shards are not MDS, or a column does not
            exist or cannot be read.
    """
    source = MDSDatasource(
        paths, columns=columns, allow_pickle=allow_pickle, **source_arguments(options)
    )
    return read(source, options)


@keywords(FILES, without=_WITHOUT)
def read_litdata(
    paths: Paths,
    *,
    columns: list[str] | None = None,
    allow_pickle: bool = False,
    block_size: int | None = None,
    **options: Unpack[FileOptions],
) -> Dataset:
    """Read chunks that `litdata.optimize` has written.

    Rows that are dicts become columns; rows that are tuples or lists get the columns "0", "1", …;
    any other row is the column `item`.

    Args:
        paths: Folders that contain `index.json` and its chunks.
        columns: Names of the columns to read, in this order; None for all.
        allow_pickle: Read values that LitData has pickled. This runs code from the files.
        block_size: Tokens per row of a dataset for `TokensLoader`.
        options: `FileOptions`. `shuffle="files"` reads the chunks in a new random order in each
            epoch; for the order of rows use `random_shuffle` or `local_shuffle_buffer_size`.

    Raises:
        FileNotFoundError: A folder has no index.
        ValueError: The chunks are encrypted or of a kind that only LitData reads, or a column does
            not exist or cannot be read.
    """
    source = LitDataDatasource(
        paths,
        columns=columns,
        allow_pickle=allow_pickle,
        block_size=block_size,
        **source_arguments(options),
    )
    return read(source, options)
