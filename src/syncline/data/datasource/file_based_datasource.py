"""The names of `ray.data.datasource.file_based_datasource`; they are defined in `io.sources`."""

from syncline.data.io.sources.file_based_datasource import FileBasedDatasource
from syncline.data.io.sources.file_listing import FileShuffleConfig

__all__ = ["FileBasedDatasource", "FileShuffleConfig"]
