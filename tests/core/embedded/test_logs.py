"""Log files are capped; tails keep the last lines of both streams."""

from syncline.core.embedded.logs import TAIL_BYTES, LogFile, Tail


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_a_file_is_made_by_the_first_write(tmp_path):
    file = LogFile(tmp_path / "worker-1.out")
    assert names(tmp_path) == []
    assert file.write(b"\xff raw\n")
    file.close()
    assert (tmp_path / "worker-1.out").read_bytes() == b"\xff raw\n"


def test_a_file_that_is_full_is_rotated_and_the_oldest_goes(tmp_path):
    path = tmp_path / "log"
    file = LogFile(path, limit_bytes=10, files=3)
    for index in range(8):
        assert file.write(b"line %d\n" % index)
    file.close()
    assert names(tmp_path) == ["log", "log.1", "log.2"]
    assert [(tmp_path / name).read_bytes() for name in names(tmp_path)] == [
        b"line 7\n",
        b"line 6\n",
        b"line 5\n",
    ]


def test_a_single_file_starts_over(tmp_path):
    file = LogFile(tmp_path / "log", limit_bytes=10, files=1)
    file.write(b"12345678")
    file.write(b"abcdefgh")
    file.close()
    assert names(tmp_path) == ["log"]
    assert (tmp_path / "log").read_bytes() == b"abcdefgh"


def test_a_closed_file_is_opened_again_by_a_write(tmp_path):
    file = LogFile(tmp_path / "log")
    file.write(b"a")
    file.close()
    file.write(b"b")
    file.close()
    assert (tmp_path / "log").read_bytes() == b"ab"


def test_a_missing_directory_costs_the_log_only(tmp_path):
    file = LogFile(tmp_path / "missing" / "log")
    assert not file.write(b"x")
    (tmp_path / "missing").mkdir()
    assert file.write(b"y")
    file.close()


def test_a_tail_has_the_last_lines_of_both_streams_in_order():
    tail = Tail()
    tail.add("out", b"one\ntwo\n")
    tail.add("err", b"three\n")
    tail.add("out", b"fo")
    tail.add("err", b"Error")
    tail.add("out", b"ur\n")
    assert tail.text(10) == "one\ntwo\nthree\nfour\nError"
    assert tail.text(2) == "four\nError"
    assert tail.text(0) == ""


def test_a_tail_shows_a_bar_once_and_replaces_what_is_no_text():
    tail = Tail()
    tail.add("err", b"\r10%\r20%\r30%")
    tail.add("out", b"\xff\n")
    assert tail.text(5) == "\ufffd\n30%"


def test_a_tail_is_bounded_and_begins_with_a_whole_line():
    tail = Tail()
    for index in range(50_000):
        tail.add("out" if index % 2 else "err", b"line number %06d\n" % index)
    lines = tail.text(1_000_000).split("\n")
    assert lines[-1] == "line number 049999"
    assert all(len(line) == len(lines[-1]) for line in lines)
    assert TAIL_BYTES // 2 < sum(map(len, lines)) <= 2 * TAIL_BYTES


def test_a_tail_of_one_endless_line_is_bounded():
    tail = Tail()
    for _ in range(100):
        tail.add("out", b"x" * 5_000)
    tail.add("out", b"\nend\n")
    assert tail.text(1) == "end"
    assert len(tail.text(100)) <= 2 * TAIL_BYTES
