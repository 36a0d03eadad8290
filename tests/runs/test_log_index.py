"""Search in logs: counts, pages, merged ranks, growing and rotated files."""

import os
import random
from functools import partial
from pathlib import Path

import pytest

from syncline.runs import log_index
from syncline.runs.log_index import SHOWN_CHARACTERS, LogIndex
from syncline.runs.log_times import LogTimes, LogTimesWriter
from syncline.runs.run_storage import LocalDirectory
from syncline.runs.tailing import log_files


class Logs:
    """Logs of a run that the test writes, with their times."""

    def __init__(self, path: Path) -> None:
        self.run = LocalDirectory(path)
        self.path = path / "logs"
        self.path.mkdir()
        self.now = 1000.0
        self.writers: dict[str, LogTimesWriter] = {}

    def print(self, member: str, text: str) -> None:
        log = self.path / f"{member}.log"
        if member not in self.writers:
            self.writers[member] = LogTimesWriter(str(log), lambda: self.now)
        self.now += 1
        self.writers[member].note(log.stat().st_size if log.exists() else 0)
        with log.open("a") as file:
            file.write(text)

    def read(self, index: LogIndex, *, ended: bool = False) -> bool:
        return index.read(log_files(self.run), ended=ended)

    def texts(self, text: str = "", *, ended: bool = False) -> list[str]:
        index = LogIndex(self.run, text)
        self.read(index, ended=ended)
        return [line.text for line in index.page(0, 1_000_000)]


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path)


def test_all_lines_are_counted_and_returned_by_page(logs: Logs) -> None:
    logs.print("rank-0", "".join(f"line {number}\n" for number in range(30_000)))
    index = LogIndex(logs.run)
    assert logs.read(index)
    assert (index.total, index.matching) == (30_000, 30_000)
    assert [line.text for line in index.page(29_998, 1000)] == ["line 29998", "line 29999"]
    assert index.page(30_000, 10) == []
    assert not logs.read(index)


def test_the_whole_file_is_searched_in_any_case(logs: Logs) -> None:
    logs.print("rank-0", "Needle first\n" + "x\n" * 20_000 + "a NEEDLE\nÜber\n")
    index = LogIndex(logs.run, "needle")
    logs.read(index)
    assert (index.total, index.matching) == (20_003, 2)
    assert [line.text for line in index.page(0, 9)] == ["Needle first", "a NEEDLE"]
    assert logs.texts("über") == ["Über"]
    assert logs.texts("nowhere") == []


def test_a_long_line_is_searched_to_its_end_and_shown_cut(logs: Logs) -> None:
    logs.print("rank-0", "before\n" + "y" * 3_000_000 + "needle\nafter\n")
    index = LogIndex(logs.run, "needle")
    logs.read(index)
    (line,) = index.page(0, 10)
    assert (index.total, index.matching) == (3, 1)
    assert (len(line.text), line.more) == (SHOWN_CHARACTERS, 3_000_006 - SHOWN_CHARACTERS)


@pytest.mark.parametrize("block", [1, 7, 64])
def test_blocks_do_not_change_the_result(
    logs: Logs, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_index, "BLOCK_BYTES", block)
    draw = random.Random(block)
    lines = ["é" * draw.randrange(40) + draw.choice(["", "needle"]) for _ in range(200)]
    logs.print("rank-0", "\n".join(lines) + "\n")
    assert logs.texts() == lines
    assert logs.texts("needle") == [line for line in lines if "needle" in line]


def test_ranks_are_merged_by_time(logs: Logs) -> None:
    expected = []
    for step in range(50):
        for rank in (1, 0, 10):
            logs.print(f"rank-{rank}", f"rank {rank} step {step}\n")
            expected.append(f"rank {rank} step {step}")
    index = LogIndex(logs.run)
    logs.read(index)
    lines = index.page(0, 1000)
    assert [line.text for line in lines] == expected
    assert [line.member for line in lines[:3]] == ["rank-1", "rank-0", "rank-10"]
    assert [line.time for line in lines[:2]] == [1001.0, 1002.0]


def test_without_times_one_rank_follows_the_other(logs: Logs) -> None:
    for rank in (1, 0):
        (logs.path / f"rank-{rank}.log").write_text(f"{rank} a\n{rank} b\n")
    assert logs.texts() == ["0 a", "0 b", "1 a", "1 b"]


def test_new_output_is_added_and_an_unfinished_line_waits(logs: Logs) -> None:
    index = LogIndex(logs.run)
    logs.print("rank-0", "a\nb")
    assert logs.read(index)
    assert index.total == 1
    logs.print("rank-0", "c\nd")
    assert logs.read(index)
    assert [line.text for line in index.page(0, 9)] == ["a", "bc"]
    assert logs.read(index, ended=True)
    assert [line.text for line in index.page(0, 9)] == ["a", "bc", "d"]


def test_a_rotated_log_is_read_again_in_order(logs: Logs) -> None:
    index = LogIndex(logs.run)
    logs.print("rank-0", "a\n")
    logs.read(index)
    os.replace(logs.path / "rank-0.log", logs.path / "rank-0.1.log")
    logs.writers["rank-0"].begin_part()
    logs.print("rank-0", "b\n")
    logs.print("rank-1", "c\n")
    assert logs.read(index)
    assert [(line.text, line.time) for line in index.page(0, 9)] == [
        ("a", 1001.0),
        ("b", 1002.0),
        ("c", 1003.0),
    ]
    assert index.total == 3


def test_of_a_progress_bar_the_last_state_counts(logs: Logs) -> None:
    logs.print("rank-0", "10 %\r20 %\r\n")
    assert logs.texts("20") == ["20 %"]
    assert logs.texts("10") == []


def test_of_a_huge_file_the_end_is_searched(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_index, "MAX_PART_BYTES", 10)
    logs.print("rank-0", "first\nsecond\nthird\n")
    index = LogIndex(logs.run)
    logs.read(index)
    assert [line.text for line in index.page(0, 9)] == ["ond", "third"]
    assert index.left_out_bytes == 9


def test_output_within_the_precision_shares_a_time(tmp_path: Path) -> None:
    now = [5.0]
    writer = LogTimesWriter(str(tmp_path / "a.log"), lambda: now[0])
    for position, moment in ((0, 5.0), (10, 5.004), (20, 5.02)):
        now[0] = moment
        writer.note(partial(int, position))
    writer.close()
    times = LogTimes((tmp_path / "a.times").read_bytes() + b"torn")
    assert [times.at(position) for position in (0, 10, 19, 20, 99)] == [5.0, 5.0, 5.0, 5.02, 5.02]
    assert LogTimes(b"").at(0) is None


def test_times_that_cannot_be_written_are_lost(tmp_path: Path) -> None:
    writer = LogTimesWriter(str(tmp_path / "missing" / "a.log"))
    writer.note(0)
    writer.note(1)
    writer.begin_part()
    writer.close()
