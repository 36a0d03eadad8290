"""Which reports are kept: all of them at first, fewer and fewer later, and never more than the
limit.
"""

import pytest

from syncline.runs import LocalFiles, RunDirectory, RunRecord, directory
from syncline.runs.thinning import Thinning

RULE = Thinning(first_bytes=1000)


def written(
    reports: int, *, ranks: int = 1, line_bytes: int = 10
) -> tuple[dict[int, list[int]], int]:
    kept: dict[int, list[int]] = {rank: [] for rank in range(ranks)}
    size = 0
    for iteration in range(reports):
        for rank in range(ranks):
            if RULE.keeps(rank, iteration, line_bytes=line_bytes, size_bytes=size):
                kept[rank].append(iteration)
                size += line_bytes
    return kept, size


def test_everything_is_kept_until_the_first_limit() -> None:
    kept, size = written(100)
    assert kept[0] == list(range(100))
    assert size == 1000


def test_after_that_every_fourth_then_every_sixteenth() -> None:
    kept, _ = written(1000)
    assert kept[0][100:110] == list(range(100, 140, 4))
    gaps = {later - earlier for earlier, later in zip(kept[0], kept[0][1:], strict=False)}
    assert gaps <= {1, 4, 8, 12, 16, 32, 48, 64}
    assert max(gaps) > 4


@pytest.mark.parametrize("reports", [10_000, 100_000])
@pytest.mark.parametrize("line_bytes", [7, 10, 333])
def test_the_file_ends_below_twice_the_first_limit(reports: int, line_bytes: int) -> None:
    assert written(reports, line_bytes=line_bytes)[1] <= 2000


def test_the_end_of_a_long_run_is_there_too() -> None:
    assert written(10_000)[0][0][-1] > 8_000


def test_ranks_keep_the_same_iterations() -> None:
    kept, _ = written(5000, ranks=3)
    assert (
        len(set(kept[0]) & set(kept[1]) & set(kept[2])) >= len(kept[0]) - 10
    )  # but for those where the stride changes


def test_one_line_larger_than_all_room_is_left_out() -> None:
    assert not RULE.keeps(0, 0, line_bytes=2001, size_bytes=0)


def test_a_wanted_report_is_kept_while_there_is_room() -> None:
    assert not RULE.keeps(0, 1, line_bytes=10, size_bytes=1400)
    assert RULE.keeps(0, 1, line_bytes=10, size_bytes=1400, wanted=True)
    assert not RULE.keeps(0, 1, line_bytes=10, size_bytes=1500, wanted=True)


def test_wanted_reports_do_not_take_the_room_of_the_later_ones() -> None:
    size, kept = 0, []
    for iteration in range(10_000):
        if RULE.keeps(0, iteration, line_bytes=10, size_bytes=size, wanted=True):
            size += 10
            kept.append(iteration)
    assert kept[-1] > 8_000


def test_trials_keep_some_reports_each_though_all_count_from_one() -> None:
    kept = {
        name for name in map(str, range(200)) if RULE.keeps(name, 1, line_bytes=10, size_bytes=1400)
    }
    assert 20 < len(kept) < 90


def test_the_latest_report_is_known_though_it_is_not_among_those_that_are_kept(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setitem(directory._THINNED, directory.METRICS_FILE, Thinning(first_bytes=2000))
    for reopened in range(2):
        with RunDirectory(LocalFiles(tmp_path)) as run:
            for index in range(reopened * 500, reopened * 500 + 499):
                run.report(index, 0, {"loss": float(index)}, time_s=1.0)
    reports = RunRecord(LocalFiles(tmp_path)).reports(rank=0)
    assert reports[-1] == {"iteration": 998, "time": 1.0, "rank": 0, "metrics": {"loss": 998.0}}
    assert len(reports) < 200
    assert (tmp_path / directory.METRICS_FILE).stat().st_size <= 4000


@pytest.mark.parametrize("values", [5, 60])
def test_ten_thousand_reports_stay_below_twenty_megabytes(tmp_path, values: int) -> None:
    metrics = {f"metric_{number}": number / 7 for number in range(values)}
    with RunDirectory(LocalFiles(tmp_path)) as run:
        for index in range(10_000):
            run.report(index, 0, metrics, time_s=1.0)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 20_000_000
