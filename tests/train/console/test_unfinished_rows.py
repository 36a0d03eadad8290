"""What of a text a terminal would still change."""

import pytest

from syncline.train.console.unfinished import MAX_ROWS, Unfinished

UP = "\x1b[A"


def test_plain_lines_are_finished_when_they_end() -> None:
    rows = Unfinished()
    assert rows.take("a\nb") == ["a"]
    assert rows.rows == ("b",)
    assert rows.take("c\n\nd\n") == ["bc", "", "d"]
    assert rows.finish() == []


def test_of_a_bar_only_the_last_state_is_left() -> None:
    rows = Unfinished()
    for percent in range(100):
        assert rows.take(f"\r{percent}%") == []
    assert rows.rows == ("99%",)
    assert rows.take("\r100%\ndone\n") == ["100%", "done"]


def test_lines_that_end_as_on_windows_are_no_bars() -> None:
    assert Unfinished().take("a\r\nb\r\n") == ["a", "b"]


def test_nested_bars_are_held_until_they_have_ended() -> None:
    rows = Unfinished()
    said = rows.take("\router 0%")
    for percent in (0, 50, 100):
        said += rows.take("\n") + rows.take(f"\rinner {percent}%") + rows.take(UP)
    assert said == []
    assert rows.rows == ("outer 0%", "inner 100%")
    said += rows.take("\n\r" + " " * 10 + "\r" + UP) + rows.take("\router 100%") + rows.take("\n")
    assert said == []
    assert rows.take("all is done\n") == ["outer 100%", "all is done"]


def test_bar_that_has_ended_is_let_go_after_a_while_but_not_one_that_runs() -> None:
    rows = Unfinished()
    rows.take("\r100%\n")
    assert rows.settle() == ["100%"]
    rows.take("\r5%")
    assert rows.settle() == []
    assert rows.rows == ("5%",)


def test_only_a_few_bars_are_held() -> None:
    rows = Unfinished()
    said = [line for number in range(20) for line in rows.take(f"\rbar {number}\n")]
    assert said == [f"bar {number}" for number in range(20 - MAX_ROWS)]


@pytest.mark.parametrize("text", [UP, f"{UP}x\n", "\x1b[5Ax\n"])
def test_moving_above_the_first_row_does_no_harm(text: str) -> None:
    rows = Unfinished()
    rows.take("a\n")
    assert rows.take(text) + rows.finish() == (["x"] if "x" in text else [])
