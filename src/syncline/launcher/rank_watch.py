"""`RankWatch`: a thread of a worker that looks at the script's main thread.

About ten times per second it adds the time since its last look to the activity that it sees
(`time_split`) and to the times of the diagnosis (`ThreadMeter`). Every two seconds it writes an
observation with the recent collective calls. Not covered: calls in a process that had not imported
torch before the script, as when the template must start new interpreters.
"""

from __future__ import annotations

import _thread
import os
import random
import sys
import threading
import time
from contextlib import suppress

from syncline.diagnosis.call_log import CallLog
from syncline.diagnosis.collective_calls import CollectiveCall
from syncline.diagnosis.host_links import read_links
from syncline.diagnosis.observation import WINDOW_S, RankObserved
from syncline.diagnosis.thread_states import ThreadMeter, frames_of, thread_source
from syncline.launcher.rank_memory import RankWriter
from syncline.launcher.time_split import PARTS, activity

LOOK_S = (0.05, 0.15)
"""Shortest and longest seconds between two looks, which are random so as not to meet steps."""


class RankWatch:
    """Watch of the main thread, which creates it and calls its methods.

    Args:
        fd: Descriptor of the launcher's `RankMemory`; may be closed after this.
        world_size: Number of ranks of the job.
    """

    def __init__(self, fd: int, world_size: int) -> None:
        self._writer = RankWriter(fd)
        self._meter = ThreadMeter()
        self._calls = CallLog(world_size)
        if "torch" in sys.modules:
            self._calls.source = _CallSource()
        self._pid = os.getpid()
        self._main_thread = threading.get_ident()
        self._thread = thread_source(threading.get_native_id())
        self._is_writing = _thread.allocate_lock()
        self._has_ended = False

    def start(self) -> None:
        """Begin to look."""
        self._meter.collections.start()
        # Not a `threading.Thread`: the script counts those.
        _thread.start_new_thread(self._look, ())

    def finish(self) -> None:
        """Write the last observation, at the end of the script; do nothing in a child process."""
        if os.getpid() == self._pid:
            self._meter.collections.stop()
            self._observe(None)

    def _look(self) -> None:
        chance = random.Random()  # the script's own generator stays as it is
        spent = dict.fromkeys(PARTS, 0.0)
        began = last = time.monotonic()
        window = int(time.time() // WINDOW_S)
        while not self._has_ended:
            left_s = (window + 1) * WINDOW_S - time.time()
            time.sleep(max(0.001, min(chance.uniform(*LOOK_S), left_s)))
            # The main thread may run during these calls, but not while its frames are looked at.
            state, scheduled = self._thread.state(), self._thread.scheduled()
            now = time.monotonic()
            frames = frames_of(self._main_thread)
            if not frames:
                return
            self._meter.has_gpu = _uses_cuda()
            seen = activity(frames, sleeps=state == "sleeping", has_gpu=self._meter.has_gpu)
            self._meter.add(frames, state, now - last, scheduled)
            del frames  # they keep the script's values
            if seen != "compute":
                spent[seen] += now - last
            last = now
            self._writer.write_times(now - began, tuple(spent.values()))
            if int(time.time() // WINDOW_S) != window:
                window = int(time.time() // WINDOW_S)
                self._observe(window)

    def _observe(self, window: int | None) -> None:
        """Write an observation; `window` is None at the end of the script."""
        with self._is_writing, suppress(Exception):  # never affect the script
            if self._has_ended:
                return
            self._has_ended = window is None
            observed = RankObserved(
                window=-1 if window is None else window,
                times=self._meter.times(),
                line=self._meter.take_line(),
                calls=self._calls.read(window),
                links=read_links(),
            )
            self._writer.write_observation(observed)


class _CallSource:
    """Reads the recorder once a process group exists: reading it first would turn it off."""

    def __init__(self) -> None:
        from syncline.diagnosis import torch_flight_recorder  # imports torch

        torch_flight_recorder.turn_on()
        self._recent_calls = torch_flight_recorder.recent_calls
        self._has_group = False

    def __call__(self) -> list[CollectiveCall]:
        distributed = sys.modules["torch"].distributed
        self._has_group = self._has_group or distributed.is_initialized()
        return self._recent_calls() if self._has_group else []


def _uses_cuda() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())
