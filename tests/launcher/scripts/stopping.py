"""Waits for SIGTERM and ends in its own way; `stopping.py DIRECTORY`."""

import os
import signal
import sys
import time
from pathlib import Path

rank = os.environ["RANK"]


def stop(number: int, frame: object) -> None:
    Path(sys.argv[1], f"stopped-{rank}").write_text(signal.Signals(number).name)
    sys.exit(0)


signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGUSR1, stop)
Path(sys.argv[1], f"ready-{rank}").touch()
while True:
    time.sleep(0.05)
