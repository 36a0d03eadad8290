"""Columns of rows that are written to a table of another format: which types it cannot hold, and
which do not fit the columns that it has.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from syncline.data.columnar import schemas


def require_storable(rows: pa.Schema, kind: str) -> None:
    """Raise ValueError for a column of Python objects, or of tensors of several shapes.

    Args:
        rows: Schema of the rows. Tensors of one shape become lists.
        kind: Name of the format.
    """
    for field in rows:
        if isinstance(field.type, pa.BaseExtensionType) and not isinstance(
            field.type, pa.FixedShapeTensorType
        ):
            raise ValueError(
                f"column {field.name!r} is {field.type}, which {kind} tables cannot hold: convert "
                "it to lists or bytes, or drop it"
            )


def require_fitting(
    rows: pa.Schema,
    present: pa.Schema,
    storable: Callable[[pa.DataType], pa.DataType],
    *,
    table: str,
    otherwise: str = "",
) -> None:
    """Raise ValueError for a column whose type does not fit that of the table.

    Args:
        rows: Schema of the rows.
        present: Schema of the table, which may lack columns of the rows.
        storable: Returns the type in which the format stores a type.
        table: The table, for the error.
        otherwise: What else the program can do, for the error.
    """
    for field in rows:
        if field.name not in present.names:
            continue
        expected = present.field(field.name).type
        if schemas.joined_type(expected, storable(field.type)) != expected:
            raise ValueError(
                f"column {field.name!r} is {field.type}, but {expected} in the {table}: cast it "
                f"with with_column({field.name!r}, col({field.name!r}).cast(...)){otherwise}"
            )
