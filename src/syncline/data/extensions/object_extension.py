"""Python objects as Arrow columns: the names of `ray.data.extensions.object_extension`. DataFrames
hold objects in columns of the dtype `object`.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from syncline.data.columnar import tensors
from syncline.data.columnar.tensors import PythonObjectScalar, PythonObjectType

ArrowPythonObjectType = PythonObjectType
ArrowPythonObjectScalar = PythonObjectScalar


class ArrowPythonObjectArray(pa.ExtensionArray):  # type: ignore[misc]
    """A column of pickled values."""

    @staticmethod
    def from_objects(objects: Iterable[object]) -> pa.ExtensionArray:
        """Return a column of the values, None for null."""
        return tensors.object_array(objects)


__all__ = ["ArrowPythonObjectArray", "ArrowPythonObjectScalar", "ArrowPythonObjectType"]
