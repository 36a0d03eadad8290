"""The names of `ray.data.datasource.file_datasink`; they are defined in `io.sinks`."""

from syncline.data.io.sinks.file_datasink import BlockBasedFileDatasink, RowBasedFileDatasink

__all__ = ["BlockBasedFileDatasink", "RowBasedFileDatasink"]
