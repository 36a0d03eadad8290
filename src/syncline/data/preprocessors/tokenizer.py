"""`Tokenizer`: split strings into lists of tokens."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from syncline.data.columnar import columns as column_values
from syncline.data.preprocessors.base import Column, ColumnPreprocessor, decoded, parameter

Tokenize = Callable[[str], list[str]]


def simple_split_tokenizer(value: str) -> list[str]:
    """Split a text at every single space."""
    return value.split(" ")


class Tokenizer(ColumnPreprocessor):
    """Replaces each string by a list of tokens; null stays null.

    Args:
        columns: Names of columns of strings.
        tokenization_fn: Function from a string to its tokens; splits at every space by default.
        output_columns: Names of the output columns; the input columns by default.
    """

    _is_fittable = False

    def __init__(
        self,
        columns: list[str],
        tokenization_fn: Tokenize | None = None,
        output_columns: list[str] | None = None,
    ) -> None:
        super().__init__(columns, output_columns)
        self._tokenization_fn = tokenization_fn or simple_split_tokenizer

    tokenization_fn: Tokenize = parameter("_tokenization_fn")

    def _transform_column(self, name: str, column: pa.ChunkedArray) -> Column:
        return tokens(name, column, self._tokenization_fn)


def tokens(name: str, column: pa.ChunkedArray, tokenize: Tokenize) -> Column:
    """Return a column of lists of tokens, null for null. Raises TypeError for other types."""
    column = decoded(column)
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.list_(pa.string()))
    if not column_values.is_text(column.type):
        raise TypeError(
            f"column {name!r} is of type {column.type}, but only strings can be split into tokens: "
            "cast it first"
        )
    if tokenize is simple_split_tokenizer:
        return pc.split_pattern(column, " ")
    lists = [
        None if text is None else list(tokenize(text)) for text in column_values.values_of(column)
    ]
    return (
        column_values.from_values(name, lists)
        if any(lists)
        else pa.array(lists, pa.list_(pa.string()))
    )
