"""`Schema`: names and types of a dataset's columns, as programs see them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


class Schema:
    """The columns of a dataset.

    Args:
        base_schema: Arrow's schema.
    """

    def __init__(self, base_schema: pa.Schema) -> None:
        self.base_schema = base_schema

    @property
    def names(self) -> list[str]:
        """Names of the columns, in order."""
        return list(self.base_schema.names)

    @property
    def types(self) -> list[pa.DataType]:
        """Arrow's types of the columns, in the same order."""
        return list(self.base_schema.types)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Schema) and self.names == other.names and self.types == other.types

    def __hash__(self) -> int:
        return hash(tuple(self.names))

    def __repr__(self) -> str:
        width = max(map(len, ["Column", *self.names])) + 2
        lines = [("Column", "Type"), ("------", "----"), *zip(self.names, self.types, strict=True)]
        return "\n".join(f"{name:<{width}}{type_}" for name, type_ in lines)
