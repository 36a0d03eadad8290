"""What an interpreter does at its end."""

import atexit
import os
import sys
import threading
import time

rank = os.environ["RANK"]
lines: list[str] = []


class Noisy:
    def __del__(self) -> None:
        print(f"[{rank}] finalized")


def later() -> None:
    time.sleep(0.2)
    print(f"[{rank}] thread done")


noisy = Noisy()
atexit.register(print, f"[{rank}] exit function 1")
atexit.register(print, f"[{rank}] exit function 2")
threading.Thread(target=later).start()
sys.stdout.write(f"[{rank}] end of script")
sys.stdout.write("\n")
