"""The names of `ray.data.expressions`; they are defined in `columnar.expressions`."""

from syncline.data.columnar import expressions
from syncline.data.columnar.expressions import *

__all__ = expressions.__all__
