"""Texts of numbers, names and durations."""

import numpy as np
import pytest

from syncline.train.console import formatting


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (3, "3"),
        (True, "True"),
        (0.123456789, "0.123457"),
        (1e-7, "1e-07"),
        (float("nan"), "nan"),
        (np.float32(0.5), "0.5"),
        (np.int64(7), "7"),
        ("adam", "adam"),
        ("a\nb", "a b"),
    ],
)
def test_values_are_short_texts(value: object, text: str) -> None:
    assert formatting.text_of(value) == text


def test_long_texts_keep_their_end() -> None:
    assert formatting.text_of("a_very_long_name_of_an_optimizer_00017", 12) == "...zer_00017"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0.0 s"),
        (4.21, "4.2 s"),
        (59, "59 s"),
        (65, "1 min 05 s"),
        (7800, "2 h 10 min"),
        (90000, "1 d 1 h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert formatting.duration(seconds) == text
