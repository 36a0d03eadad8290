"""Streams of workers, read in this process."""

import os
import pty
import selectors
from pathlib import Path

import pytest

from syncline.launcher.output import TAIL_BYTES, RankOutput, same_file, terminal_like, write_all


@pytest.fixture
def selector():
    with selectors.DefaultSelector() as found:
        yield found


def pass_on(selector: selectors.BaseSelector) -> None:
    while ready := selector.select(0):
        for key, _ in ready:
            key.data.read(key.fd)


def test_files_get_the_streams_and_the_log_gets_both(selector, tmp_path):
    log: list[bytes] = []
    output = RankOutput(0, selector, log.append)
    stdout, stderr = output.open(str(tmp_path / "out"), str(tmp_path / "err"))
    os.write(stdout, b"one\n")
    os.write(stderr, b"two\n")
    pass_on(selector)
    os.write(stdout, b"three\n")
    output.drain()
    for fd in (stdout, stderr):
        os.close(fd)
    output.close()
    assert (tmp_path / "out").read_bytes() == b"one\nthree\n"
    assert (tmp_path / "err").read_bytes() == b"two\n"
    assert sorted(b"".join(log).split()) == [b"one", b"three", b"two"]
    assert "three" in output.tail()


def test_process_that_outlives_its_worker_may_go_on_writing(selector, tmp_path):
    output = RankOutput(0, selector, None)
    stdout, stderr = output.open(str(tmp_path / "out"), os.devnull)
    output.drain()
    os.write(stdout, b"later\n")
    pass_on(selector)
    assert (tmp_path / "out").read_bytes() == b"later\n"
    output.close()
    for fd in (stdout, stderr):
        os.close(fd)


def test_end_of_a_stream_is_noticed(selector, tmp_path):
    output = RankOutput(0, selector, None)
    for fd in output.open(str(tmp_path / "out"), str(tmp_path / "err")):
        os.close(fd)
    pass_on(selector)
    assert not selector.get_map()


def test_tail_is_bounded(selector, tmp_path):
    output = RankOutput(0, selector, None)
    stdout, stderr = output.open(str(tmp_path / "out"), os.devnull)
    for number in range(3_000):
        os.write(stdout, f"line {number} {'x' * 40}\n".encode())
        pass_on(selector)
    assert len(output.tail()) <= TAIL_BYTES
    assert "line 2999" in output.tail()
    output.close()
    for fd in (stdout, stderr):
        os.close(fd)


def test_terminal_has_the_size_of_the_console_and_changes_no_bytes():
    console_master, console = pty.openpty()
    os.system(f"stty rows 33 cols 77 < /proc/self/fd/{console}")
    master, slave = terminal_like(console)
    assert os.isatty(slave)
    if os.get_terminal_size(console) == (77, 33):  # stty is there
        assert os.get_terminal_size(slave) == (77, 33)
    os.write(slave, b"a\nb")
    assert os.read(master, 100) == b"a\nb"
    for fd in (console_master, console, master, slave):
        os.close(fd)


def test_same_file(tmp_path):
    path = Path(tmp_path, "a")
    one = os.open(path, os.O_RDWR | os.O_CREAT)
    other, different = os.dup(one), os.open(os.devnull, os.O_RDWR)
    assert same_file(one, other)
    assert not same_file(one, different)
    for fd in (one, other, different):
        os.close(fd)
    assert not same_file(one, other)


def test_output_for_nobody_is_dropped():
    reader, writer = os.pipe()
    os.close(reader)
    write_all(writer, b"lost")
    os.close(writer)
