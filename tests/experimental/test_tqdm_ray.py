"""Progress bars: their text, their rows, and what a terminal shows of them."""

from __future__ import annotations

import re

import pytest

from syncline.core.live_region import UnfinishedRows
from syncline.experimental import tqdm_ray
from syncline.experimental.tqdm_ray import tqdm


@pytest.fixture(autouse=True)
def rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tqdm_ray, "_rows", tqdm_ray._Rows())


def shown(text: str) -> list[str]:
    """Return the rows that a terminal shows, without times."""
    rows = UnfinishedRows()
    finished = rows.write(text)
    return [re.sub(r" \[.*", "", row) for row in [*finished, *rows.finish()]]


def test_bar_counts_items_and_stays_when_it_is_closed(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(tqdm([1, 2, 3, 4], desc="load", flush_interval_s=0)) == [1, 2, 3, 4]
    assert shown(capsys.readouterr().err) == ["load: 100%|████████████████████| 4/4"]


def test_bars_have_rows_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tqdm(total=2, desc="a"), tqdm(total=4, desc="b")
    second.update(1)
    second.refresh()
    first.update(2)
    first.refresh()
    found = shown(capsys.readouterr().err)
    assert [row.split("|")[0] for row in found] == ["a: 100%", "b:  25%"]
    second.close()
    first.close()
    first.close()
    assert shown(capsys.readouterr().err)[-1].startswith("b:  25%")


def test_bar_without_a_total_counts(capsys: pytest.CaptureFixture[str]) -> None:
    with tqdm(desc="rows", unit="rows") as bar:
        bar.update(7)
        bar.set_description("more")
    assert shown(capsys.readouterr().err) == ["more: 7 rows"]
    bar.n, bar.total = 1, 2
    assert bar.text().startswith("more:  50%")


def test_updates_are_not_drawn_more_often_than_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    bar = tqdm(total=1000, flush_interval_s=3600)
    capsys.readouterr()
    bar.update(500)
    assert capsys.readouterr().err == ""


def test_hidden_bars_draw_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    bar = tqdm(total=2, flush_interval_s=0)
    capsys.readouterr()
    tqdm_ray.instance().hide_bars()
    bar.update()
    assert capsys.readouterr().err == ""
    tqdm_ray.instance().unhide_bars()
    assert "1/2" in capsys.readouterr().err
    tqdm_ray.safe_print("line")
    assert capsys.readouterr().out == "line\n"


def test_where_rows_cannot_be_redrawn_bars_are_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tqdm_ray, "_shows_rows", lambda: False)
    bar = tqdm(total=2, flush_interval_s=0)
    bar.update(2)
    bar.close()
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("|")[0] for line in lines] == ["  0%", "100%"]
