"""Growing files: torn and broken lines, sealed pieces, rotated logs."""

import json
from pathlib import Path

from syncline.runs import tailing
from syncline.runs.run_storage import LocalDirectory
from syncline.runs.tailing import LineReader, LogReader, log_files, terminal_text


def append(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        file.write(text)


def test_lines_come_once_and_only_with_their_end(tmp_path) -> None:
    file, reader = tmp_path / "events.jsonl", LineReader(LocalDirectory(tmp_path), "events.jsonl")
    assert reader.read() == []
    append(file, '{"a": 1}\n{"a"')
    assert reader.read() == [{"a": 1}]
    append(file, ': 2}\n{"a": 3}\n')
    assert reader.read() == [{"a": 2}, {"a": 3}]
    assert reader.read() == []


def test_broken_lines_are_passed_over_and_counted(tmp_path) -> None:
    deep = "[" * 100_000
    append(tmp_path / "x.jsonl", f'{{"a": 1}}\nnonsense\n[1]\n{deep}\n{{"a": 2}}\n\n')
    reader = LineReader(LocalDirectory(tmp_path), "x.jsonl")
    assert reader.read() == [{"a": 1}, {"a": 2}]
    assert reader.unreadable == 4


def test_a_line_that_smuggles_further_values_is_broken(tmp_path) -> None:
    append(tmp_path / "x.jsonl", '{"a": 1},{"a": 9}\n')
    assert len(LineReader(LocalDirectory(tmp_path), "x.jsonl").read()) <= 2


def test_pieces_that_are_sealed_while_they_are_followed(tmp_path) -> None:
    reader = LineReader(LocalDirectory(tmp_path), "m.jsonl")
    append(tmp_path / "m.jsonl", '{"a": 1}\n')
    assert reader.read() == [{"a": 1}]
    append(tmp_path / "m.jsonl", '{"a": 2}\n')
    (tmp_path / "m.jsonl").rename(tmp_path / "m-00001.jsonl")
    assert reader.read() == [{"a": 2}]
    append(tmp_path / "m.jsonl", '{"a": 3}\n')
    assert reader.read() == [{"a": 3}]


def test_what_a_kill_left_beside_its_sealed_piece_is_not_read_twice(tmp_path) -> None:
    for name in ("m-00001.jsonl", "m.jsonl"):
        append(tmp_path / name, '{"a": 1}\n{"a": 2}\n')
    assert LineReader(LocalDirectory(tmp_path), "m.jsonl").read() == [{"a": 1}, {"a": 2}]


def test_a_log_is_followed_over_its_rotation(tmp_path) -> None:
    log = tmp_path / "logs" / "rank-0.log"
    append(log, "one\ntwo\nthr")
    reader = LogReader(LocalDirectory(tmp_path), "rank-0")
    assert reader.lines() == ["one", "two"]
    append(log, "ee\nfour\n")
    log.rename(log.with_name("rank-0.1.log"))
    append(log, "five\n")
    assert reader.lines() == ["three", "four", "five"]
    append(log, "no end")
    assert reader.lines() == []
    assert reader.lines(ending=True) == ["no end"]


def test_a_log_is_read_from_its_older_part_on_or_only_its_tail(tmp_path) -> None:
    append(tmp_path / "logs" / "rank-0.1.log", "old\n")
    append(tmp_path / "logs" / "rank-0.log", "first\nsecond\nthird\n")
    assert LogReader(LocalDirectory(tmp_path), "rank-0").lines() == [
        "old",
        "first",
        "second",
        "third",
    ]
    assert LogReader(LocalDirectory(tmp_path), "rank-0", tail_bytes=9).lines() == ["third"]
    assert LogReader(LocalDirectory(tmp_path), "rank-0", tail_bytes=900).lines() == [
        "old",
        "first",
        "second",
        "third",
    ]
    assert LogReader(LocalDirectory(tmp_path), "rank-0", tail_bytes=21).lines() == [
        "first",
        "second",
        "third",
    ]


def test_a_log_that_began_anew_twice_between_two_looks_loses_only_what_is_gone(tmp_path) -> None:
    log = tmp_path / "logs" / "rank-0.log"
    append(log, "one\ntwo\n")
    reader = LogReader(LocalDirectory(tmp_path), "rank-0")
    assert reader.lines() == ["one", "two"]
    append(log, "gone\n")
    for text in ("three\nfour\n", "five, which is longer than what was read\n"):
        log.rename(log.with_name("rank-0.1.log"))
        append(log, text)
    assert reader.lines() == ["three", "four", "five, which is longer than what was read"]
    assert reader.lines() == []


def test_a_new_part_is_known_though_it_is_longer_than_the_one_before(tmp_path) -> None:
    log = tmp_path / "logs" / "rank-0.log"
    append(log, "a\nbe")
    reader = LogReader(LocalDirectory(tmp_path), "rank-0", tail_bytes=100)
    assert reader.lines() == ["a"]
    append(log, "gun\n")
    log.rename(log.with_name("rank-0.1.log"))
    append(log, "the new part is longer\n")
    assert reader.lines() == ["begun", "the new part is longer"]


def test_a_large_file_is_read_in_parts_and_a_line_longer_than_a_part_is_whole(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(tailing, "BATCH_BYTES", 100)
    records = [{"number": number, "text": "x" * (number % 5 * 60)} for number in range(50)]
    append(tmp_path / "x.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    batches = list(LineReader(LocalDirectory(tmp_path), "x.jsonl").batches())
    assert [record for batch in batches for record in batch] == records
    assert len(batches) > 20


def test_logs_are_listed_by_number_with_their_parts(tmp_path) -> None:
    for name in ("rank-10.log", "rank-2.log", "rank-2.1.log", "notes.txt"):
        append(tmp_path / "logs" / name, "x")
    files = log_files(LocalDirectory(tmp_path))
    assert [file.member for file in files] == ["rank-2", "rank-10"]
    assert files[0].parts == ("rank-2.1.log", "rank-2.log")
    assert files[0].size_bytes == 2


def test_progress_bars_are_shown_as_a_terminal_leaves_them() -> None:
    assert terminal_text("10%\r50%\r100%\r") == "100%"
