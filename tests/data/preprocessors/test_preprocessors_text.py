"""Tokenizer, vectorizers and hasher, against values that Ray's give for the same frames (which are
broken for counts under pandas 3).
"""

from collections import Counter
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from syncline.data.preprocessors import CountVectorizer, FeatureHasher, HashingVectorizer, Tokenizer

TEXTS = ["Jimmy likes volleyball", "Bob likes volleyball too", "Bob also likes fruit jerky", None]


def words(text: str) -> list[str]:
    return text.lower().split()


def test_tokenizer_splits_at_spaces_or_by_a_function(dataset: Any) -> None:
    texts = dataset({"t": ["a  b", None, ""]})
    assert Tokenizer(["t"]).transform(texts).column("t") == [["a", "", "b"], None, [""]]
    assert Tokenizer(["t"], tokenization_fn=str.split, output_columns=["o"]).transform(
        texts
    ).column("o") == [["a", "b"], None, []]
    with pytest.raises(TypeError, match="'t' is of type int64, but only strings can be split"):
        Tokenizer(["t"]).transform(dataset({"t": [1]}))


def test_hashing_vectorizer_agrees_with_ray(dataset: Any) -> None:
    vectors = HashingVectorizer(["t"], num_features=8).transform(dataset({"t": TEXTS}))
    assert vectors.column("t") == [
        [0, 0, 1, 1, 0, 0, 1, 0],
        [1, 1, 0, 1, 0, 0, 1, 0],
        [1, 1, 0, 2, 1, 0, 0, 0],
        None,
    ]


def test_count_vectorizer_counts_tokens_most_frequent_first(dataset: Any) -> None:
    data = dataset({"t": TEXTS})
    vectorizer = CountVectorizer(["t"]).fit(data)
    counts = {
        "likes": 3,
        "volleyball": 2,
        "Bob": 2,
        "Jimmy": 1,
        "too": 1,
        "also": 1,
        "fruit": 1,
        "jerky": 1,
    }
    assert vectorizer.stats_ == {"token_counts(t)": Counter(counts)}
    assert list(vectorizer.stats_["token_counts(t)"]) == list(counts)
    assert vectorizer.transform(data).column("t") == [
        [1, 1, 0, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 1, 0, 0, 0],
        [1, 0, 1, 0, 0, 1, 1, 1],
        None,
    ]


def test_count_vectorizer_limits_its_vocabulary_and_takes_a_function(dataset: Any) -> None:
    data = dataset({"t": TEXTS})
    vectorizer = CountVectorizer(["t"], words, max_features=3, output_columns=["c"]).fit(data)
    assert vectorizer.stats_ == {
        "token_counts(t)": Counter({"likes": 3, "volleyball": 2, "bob": 2})
    }
    assert vectorizer.transform(data).column("c") == [[1, 1, 0], [1, 1, 1], [1, 0, 1], None]


def test_texts_without_any_known_token_are_zeros(dataset: Any) -> None:
    vectorizer = CountVectorizer(["t"], max_features=2).fit(dataset({"t": ["x y", "x"]}))
    assert vectorizer.transform(dataset({"t": ["q", "x x"]})).column("t") == [[0, 0], [2, 0]]
    nothing = CountVectorizer(["t"]).fit(
        dataset(pa.table({"t": pa.array([None, None], pa.string())}))
    )
    assert nothing.transform(dataset({"t": ["q", "x"]})).column("t") == [[], []]


def test_feature_hasher_sums_columns_with_equal_hashes(dataset: Any) -> None:
    counts = {"I": [1, 1], "like": [1, 0], "dislike": [0, 1], "Python": [1, 1]}
    hashed = FeatureHasher(list(counts), num_features=8, output_column="h").transform(
        dataset(counts)
    )
    assert hashed.column("h") == [[0, 0, 0, 1, 1, 0, 0, 1], [0, 0, 0, 1, 1, 0, 0, 1]]
    assert list(hashed.rows()[0]) == ["I", "like", "dislike", "Python", "h"]


def test_feature_hasher_gives_nan_for_missing_counts() -> None:
    frame = FeatureHasher(["I"], 2, "h").transform_batch(pd.DataFrame({"I": [1, None]}))
    assert frame["h"].iloc[0].sum() == 1.0
    assert pd.isna(frame["h"].iloc[1]).sum() == 1
