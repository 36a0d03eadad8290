"""The name of `ray.data.datasource.filename_provider`; it is defined in `io.sinks`."""

from syncline.data.io.sinks.file_datasink import FilenameProvider

__all__ = ["FilenameProvider"]
