"""Texts of the log viewer."""

import pytest

from syncline.dashboard.pages.logs_panel import PAGE_CHARACTERS, PAGE_LINES, count_text, page_text
from syncline.runs.log_index import LogLine


@pytest.mark.parametrize(
    ("counts", "asked", "text"),
    [
        ((0, 0, 0, 0), "", "No output yet."),
        ((1, 1, 0, 1), "", "1 line."),
        ((30_000, 30_000, 29_000, 1_000), "", "30 000 lines; 29 001 to 30 000 are shown."),
        ((30_000, 12, 0, 12), "odd", "30 000 lines, 12 containing “odd”."),
        ((30_000, 0, 0, 0), "odd", "30 000 lines, 0 containing “odd”."),
    ],
)
def test_counts(counts: tuple[int, int, int, int], asked: str, text: str) -> None:
    assert count_text(*counts, asked).replace("\u202f", " ") == text


def test_lines_of_all_ranks_name_theirs() -> None:
    lines = [LogLine(member="rank-3", text="a", time=None), LogLine(member="x", text="b", time=0.5)]
    assert page_text(lines, members=True, times=False) == "[rank 3] a\n[x] b"
    assert page_text(lines, members=False, times=False) == "a\nb"
    first, second = page_text(lines, members=False, times=True).splitlines()
    assert first == "a"
    assert second.endswith(":00.50 b")


def test_a_page_of_long_lines_fits() -> None:
    line = LogLine(member="rank-0", text="x" * 5_000, time=None, more=7)
    text = page_text([line] * PAGE_LINES, members=True, times=True)
    assert text.count("\n") == PAGE_LINES - 1
    assert len(text) < 1.3 * PAGE_CHARACTERS
    assert text.endswith(f" … {5_007 - PAGE_CHARACTERS // PAGE_LINES} more characters")
