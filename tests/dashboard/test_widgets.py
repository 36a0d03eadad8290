"""Formatting of texts, numbers and rows for any record."""

import json
import math

import pytest

from syncline.dashboard.formatting import (
    ago,
    duration,
    moment,
    number,
    percent,
    plain_value,
    printable,
    size,
)
from syncline.dashboard.widgets.tables import Column, clean_row, column_definition


def test_what_would_break_a_message_or_turn_the_text_around_is_replaced():
    assert printable("a\ud800b\x00c\u202ed\x1b[31m") == "a\ufffdb\ufffdc\ufffdd\ufffd[31m"
    printable("\udfff").encode()


def test_lines_tabs_and_other_scripts_stay():
    assert printable("ä\n\tб中🙂") == "ä\n\tб中🙂"


def test_markup_stays_text():
    assert printable("<b>&amp;</b>") == "<b>&amp;</b>"


def test_long_texts_are_cut_and_it_is_said():
    assert printable("x" * 20, 5) == "xxxxx…"
    assert printable("x" * 5_020, 5_000) == "x" * 5_000 + "\n… 20 more characters"


@pytest.mark.parametrize(
    "value",
    [1, 2**60, 10**400, 1.5, math.nan, math.inf, None, True, "a\ud800", ["list"], {"a": object()}],
)
def test_a_row_can_be_sent_whatever_is_in_it(value: object):
    row = clean_row({"a": value, "state": "running"}, ("state",))
    assert json.loads(json.dumps(row, allow_nan=False).encode())["state:state"] == "running"


def test_a_state_from_a_record_names_no_style():
    assert clean_row({"state": "x' onclick='"}, ("state",))["state:state"] == "other"


def test_integers_beyond_what_browsers_count_are_texts():
    assert plain_value(2**53) == 2**53
    assert plain_value(2**53 + 1) == "9007199254740993"


def test_a_column_has_no_key_that_a_browser_would_run():
    made = column_definition(Column(name="metric0", label=":alert(1)"))
    assert not [key for key in made if key.startswith(":")]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (math.nan, "-"),
        (0.012, "12 ms"),
        (8.34, "8.3 s"),
        (59.4, "59 s"),
        (320, "5 min 20 s"),
        (11_040, "3 h 04 min"),
    ],
)
def test_durations_in_words(seconds: float | None, text: str):
    assert duration(seconds) == text
    assert duration(190_800.0) == "2 d 5 h"


@pytest.mark.parametrize(
    ("passed", "text"),
    [(1, "now"), (40, "40 s ago"), (180, "3 min ago"), (7_200, "2 h ago"), (200_000, "2 d ago")],
)
def test_moments_in_words(passed: float, text: str):
    assert ago(1e9, now=1e9 + passed) == text


@pytest.mark.parametrize("when", [None, math.nan, math.inf, 1e300, -1e300])
def test_what_no_calendar_has_is_a_dash(when: float | None):
    assert moment(when) == "-"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0.123456, "0.12346"),
        (1234567, "1\u202f234\u202f567"),
        (10**400, "huge"),
        ("<b>", "<b>"),
        (True, "True"),
    ],
)
def test_numbers_in_words(value: object, text: str):
    assert number(value) == text


def test_sizes_and_shares_in_words():
    assert [size(1), size(1536), size(3 * 1024**5), size(None)] == [
        "1 B",
        "1.5 KiB",
        "3072.0 TiB",
        "-",
    ]
    assert [percent(0.934), percent(None)] == ["93 %", "-"]
