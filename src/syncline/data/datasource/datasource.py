"""The names of `ray.data.datasource.datasource`; they are defined in `io.sources`."""

from syncline.data.io.sources.datasource import BlockMetadata, Datasource, ReadTask
from syncline.data.io.sources.range import RandomIntRowDatasource

__all__ = ["BlockMetadata", "Datasource", "RandomIntRowDatasource", "ReadTask"]
