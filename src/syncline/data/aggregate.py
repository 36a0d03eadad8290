"""The names of `ray.data.aggregate`; they are defined in `columnar.aggregate`."""

from syncline.data.columnar import aggregate
from syncline.data.columnar.aggregate import *

__all__ = aggregate.__all__
