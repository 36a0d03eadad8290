"""Vectorizers: convert strings to vectors of token counts. A missing string becomes null."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from syncline.data.columnar import tensors
from syncline.data.preprocessor import StatComputationPlan
from syncline.data.preprocessors import categories
from syncline.data.preprocessors.base import (
    Column,
    ColumnPreprocessor,
    as_lists,
    counts_matrix,
    parameter,
)
from syncline.data.preprocessors.categories import CategoryCounter, counter_of
from syncline.data.preprocessors.hasher import simple_hash
from syncline.data.preprocessors.tokenizer import Tokenize, simple_split_tokenizer, tokens


class _Vectorizer(ColumnPreprocessor):
    """Splits strings into tokens and counts them by code."""

    def __init__(
        self, columns: list[str], tokenization_fn: Tokenize | None, output_columns: list[str] | None
    ) -> None:
        super().__init__(columns, output_columns)
        self._tokenization_fn = tokenization_fn or simple_split_tokenizer

    tokenization_fn: Tokenize = parameter("_tokenization_fn")

    def _vectors(
        self, column: pa.ChunkedArray, codes: np.ndarray, parents: np.ndarray, width: int
    ) -> pa.Array:
        """Return an int64 tensor `(width,)` per row, null where the column is null."""
        missing = column.is_null().to_numpy() if column.null_count else None
        return tensors.tensor_array(
            counts_matrix(codes, parents, len(column), width), missing=missing
        )


class HashingVectorizer(_Vectorizer):
    """Counts the tokens with the same hash in an int64 tensor per row.

    Args:
        columns: Names of columns of strings.
        num_features: Length of the tensors.
        tokenization_fn: Function from a string to its tokens; splits at every space by default.
        output_columns: Names of the output columns; the input columns by default.
    """

    _is_fittable = False

    def __init__(
        self,
        columns: list[str],
        num_features: int,
        tokenization_fn: Tokenize | None = None,
        *,
        output_columns: list[str] | None = None,
    ) -> None:
        super().__init__(columns, tokenization_fn, output_columns)
        self._num_features = num_features

    num_features: int = parameter("_num_features")

    def _transform_column(self, name: str, column: pa.ChunkedArray) -> Column:
        lists = _lists(name, column, self._tokenization_fn)
        # Each distinct token is hashed once.
        found = pc.list_flatten(lists).dictionary_encode()
        hashes = np.array(
            [simple_hash(token, self._num_features) for token in found.dictionary.to_pylist()],
            np.int64,
        )
        parents = pc.list_parent_indices(lists).to_numpy().astype(np.int64)
        return self._vectors(column, hashes[found.indices.to_numpy()], parents, self._num_features)


class CountVectorizer(_Vectorizer):
    """Counts the tokens of a learned vocabulary in an int64 tensor per row, the most frequent token
    first.

    `stats_`: `token_counts(column)`, a Counter of the vocabulary.

    Args:
        columns: Names of columns of strings.
        tokenization_fn: Function from a string to its tokens; splits at every space by default.
        max_features: Maximum size of the vocabulary; the most frequent tokens are kept. All tokens
            by default.
        output_columns: Names of the output columns; the input columns by default.
    """

    def __init__(
        self,
        columns: list[str],
        tokenization_fn: Tokenize | None = None,
        max_features: int | None = None,
        *,
        output_columns: list[str] | None = None,
    ) -> None:
        super().__init__(columns, tokenization_fn, output_columns)
        self._max_features = max_features

    max_features: int | None = parameter("_max_features")

    def _plan_statistics(self, plan: StatComputationPlan) -> None:
        plan.add_aggregator(
            aggregator_fn=lambda name: _TokenCounter(
                name, f"token_counts({name})", self._tokenization_fn
            ),
            columns=self._columns,
            post_process_fn=lambda found: Counter(
                dict(counter_of(found).most_common(self._max_features))
            ),
        )

    def _transform_column(self, name: str, column: pa.ChunkedArray) -> Column:
        counts = self.stats_[f"token_counts({name})"]
        vocabulary = {token: code for code, (token, _) in enumerate(counts.most_common())}
        lists = _lists(name, column, self._tokenization_fn)
        codes, parents = categories.element_codes_of(name, pa.chunked_array([lists]), vocabulary)
        return self._vectors(column, codes, parents, len(vocabulary))


class _TokenCounter(CategoryCounter):
    """Counts the tokens of a column of strings."""

    def __init__(self, on: str, alias_name: str, tokenize: Tokenize) -> None:
        super().__init__(on, alias_name, elements=True)
        self._on = on
        self._tokenize = tokenize

    def prepare(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        return pa.chunked_array([_lists(self._on, column, self._tokenize)])


def _lists(name: str, column: pa.ChunkedArray, tokenize: Tokenize) -> pa.Array:
    """Return the tokens of each string as one array of lists."""
    found = tokens(name, column, tokenize)
    lists = as_lists(found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found]))
    assert lists is not None
    return lists
