"""`fit()` in a pseudo-terminal: the panel is removed and the terminal restored."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncline.testing.waiting import eventually

pytestmark = pytest.mark.processes

PROGRAM = """
import sys, time
from syncline import train

def loop(config):
    for epoch in range(config["epochs"]):
        print(f"from epoch {epoch}", flush=True)
        time.sleep(0.2)
        train.report({"epoch": epoch, "loss": 0.5})

if __name__ == "__main__":
    run_config = train.RunConfig(name="vit", storage_path=sys.argv[1])
    config = {"epochs": int(sys.argv[2])}
    train.DataParallelTrainer(loop, train_loop_config=config, run_config=run_config).fit()
    print("the program goes on")
"""
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


class Screen:
    """A program in a terminal of 80 by 24 characters, and all that it writes."""

    def __init__(self, folder: Path, epochs: int) -> None:
        script = folder / "program.py"
        script.write_text(PROGRAM)
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.modes = termios.tcgetattr(slave)
        environment = {**os.environ, "TERM": "xterm-256color"}
        command = [sys.executable, str(script), str(folder / "runs"), str(epochs)]
        self.program = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
        )
        self._slave = slave
        self._pieces: list[bytes] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @property
    def text(self) -> str:
        return b"".join(self._pieces).decode(errors="replace")

    @property
    def modes_now(self) -> list[object]:
        return termios.tcgetattr(self._slave)

    def wait(self) -> int:
        return self.program.wait(120)

    def close(self) -> None:
        if self.program.poll() is None:
            self.program.kill()
            self.program.wait()
        os.close(self._slave)
        self._reader.join()
        os.close(self._master)

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._master, 65536)
            except OSError:  # nobody has the other end any more
                return
            self._pieces.append(piece)


@pytest.fixture
def screens(tmp_path: Path) -> Iterator[list[Screen]]:
    made: list[Screen] = []
    yield made
    for screen in made:
        screen.close()


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text).replace("\r", "")


def test_panel_is_replaced_by_summary(tmp_path: Path, screens: list[Screen]) -> None:
    screen = Screen(tmp_path, epochs=6)
    screens.append(screen)
    assert screen.wait() == 0
    eventually(lambda: "the program goes on" in screen.text)
    drawn, shown, after = screen.text.rpartition(SHOW)
    assert shown
    assert screen.text.count(HIDE) == screen.text.count(SHOW) == 1
    assert "vit: training, " in plain(drawn)
    assert re.search(r"progress .*epoch \d of 6, \d+ %", plain(drawn))
    for epoch in range(6):
        assert plain(drawn).count(f"from epoch {epoch}\n") == 1
    lines = plain(after).strip().splitlines()
    assert re.fullmatch(
        r"syncline: training vit finished after .* s with epoch=5, loss=0\.5", lines[0]
    )
    assert f"  results: {tmp_path}/runs/vit" in "".join(lines)
    assert lines[-1] == "the program goes on"
    assert screen.modes_now == screen.modes


def test_interrupt_removes_panel(tmp_path: Path, screens: list[Screen]) -> None:
    screen = Screen(tmp_path, epochs=1000)
    screens.append(screen)
    eventually(lambda: re.search(r"epoch \d+ of 1000", plain(screen.text)))
    os.killpg(screen.program.pid, signal.SIGINT)
    assert screen.wait() != 0
    eventually(lambda: "KeyboardInterrupt" in screen.text)
    drawn, shown, after = screen.text.rpartition(SHOW)
    assert shown
    assert HIDE in drawn
    assert "syncline: training vit was interrupted after" in plain(after)
    assert screen.modes_now == screen.modes
