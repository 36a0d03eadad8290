"""The names of `ray.data.datatype`; they are defined in `columnar.datatype`."""

from syncline.data.columnar.datatype import DataType

__all__ = ["DataType"]
