"""Texts of what trials hold."""

import numpy as np
import pytest

from syncline.tune.console import values


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
    assert values.text_of(value) == text


def test_long_texts_keep_their_end() -> None:
    assert values.text_of("a_very_long_name_of_an_optimizer_00017", 12) == "...zer_00017"


def test_names_are_cut_to_what_tells_them_apart() -> None:
    assert values.short_names(["model/lr", "optimizer/lr", "model/layers", "seed"]) == {
        "model/lr": "model/lr",
        "optimizer/lr": "optimizer/lr",
        "model/layers": "layers",
        "seed": "seed",
    }
    assert values.short_names(["a/b/lr", "c/d/lr"]) == {"a/b/lr": "b/lr", "c/d/lr": "d/lr"}


def test_name_that_is_the_end_of_another_stays_whole() -> None:
    assert values.short_names(["lr", "model/lr"]) == {"lr": "lr", "model/lr": "model/lr"}


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0.0 s"), (4.21, "4.2 s"), (59, "59 s"), (65, "1 min 05 s"), (7800, "2 h 10 min"), (90000, "1 d 1 h")]
)
def test_durations(seconds: float, text: str) -> None:
    assert values.duration(seconds) == text


def test_last_line_of_an_error() -> None:
    assert values.last_line(None, "Traceback …\n  File …\nValueError: no data\n") == "ValueError: no data"
    assert values.last_line(ValueError("no data")) == "ValueError: no data"
    assert values.last_line(None) == "no reason is known"


def test_parameters_in_one_line() -> None:
    assert values.parameters_text({"lr": 0.01234567, "name": "x" * 50}, 10) == "{'lr': 0.0123457, 'name': ...xxxxxx'}"
