"""`RunnerHandle`: one env runner in another process, which can be restarted exactly.

Covered: ordered calls, samples through shared memory, the log of calls since the last known state
of the environments, and its replay by a new process. Not covered: the decision to kill or restart
a runner (`group`).
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from syncline.core import api
from syncline.core.engine import current_engine
from syncline.exceptions import GetTimeoutError, RayActorError
from syncline.rl.runners.hang_detector import HangDetector, Verdict
from syncline.rl.runners.sample import Sample
from syncline.rl.runners.shared_memory import SampleReader, StoredSample

logger = logging.getLogger("syncline")

SAMPLES_PER_STATE = 16
"""Samples after which a runner sends the states of its environments; a new process repeats at most
this number."""
MAX_LOGGED_CALLS = 256
"""Calls without a sample after which a new process begins new episodes."""
NOT_REPEATED = ("get_state", "get_spaces")


@dataclass(eq=False)
class Call:
    """An unanswered call of a runner."""

    method: str
    args: tuple[object, ...]
    ref: Any = None
    slot: int | None = None
    is_fragment: bool = False
    """Its sample is kept in `arrived` if another call is received first."""
    is_answered: bool = False
    value: Any = None
    """The answer, if another call was received first."""
    is_abandoned: bool = False
    """No caller waits for the answer; an error is only logged."""


class RunnerHandle:
    """Not thread-safe.

    Args:
        index: Index of the runner.
        start: Creates the actor; its argument is the number of previous attempts that ended
            without an answer.
        detector: Monitors the duration of calls.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        index: int,
        start: Callable[[int], Any],
        detector: HangDetector,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.index = index
        self._start = start
        self.detector = detector
        self._clock = clock
        self.failures_in_row = 0
        self.samples_per_state = SAMPLES_PER_STATE
        """Samples after which the runner sends its state; the log contains at most this number of
        weight versions."""
        self._pending: deque[Call] = deque()
        self.arrived: deque[Sample] = deque()
        """Samples of `request` that arrived while another call was received."""
        self._log: list[tuple[str, tuple[object, ...]]] = []
        self._state: bytes | None = None
        self._weights: list[tuple[object, ...]] = []
        self._changes: list[tuple[object, ...]] = []
        self._is_exact = True
        self._samples_logged = 0
        self._connect()

    def _connect(self) -> None:
        self.actor = self._start(self.failures_in_row)
        self._reader: SampleReader | None = None
        self._address = self.actor.memory_address.remote()
        self._used_slots: set[int] = set()

    # -- calls

    def submit(self, method: str, *args: object) -> Call:
        """Send a call; `receive` returns its answer."""
        call = Call(method, args)
        self._send(call)
        self._pending.append(call)
        return call

    def request(self, method: str, amount: int, options: dict[str, object]) -> Call:
        """Request a fragment; its sample is returned by `receive` or stored in `arrived`."""
        call = self.submit("sample", method, amount, options)
        call.is_fragment = True
        return call

    def _send(self, call: Call) -> None:
        if not self._pending or call is self._pending[0]:
            self._begin(call)
        if call.method != "sample":
            call.ref = getattr(self.actor, call.method).remote(*call.args)
            return
        self._open_memory()
        if self._reader is not None:
            call.slot = next(n for n in range(len(self._pending) + 2) if n not in self._used_slots)
            self._used_slots.add(call.slot)
        self._samples_logged += 1
        with_state = self._samples_logged >= self.samples_per_state
        if with_state:
            self._samples_logged = 0
        call.ref = self.actor.sample.remote(*call.args, call.slot, with_state)

    def _begin(self, call: Call) -> None:
        is_sample = call.method == "sample"
        self.detector.begin(self._clock(), self.progress(), can_restart=is_sample)

    @property
    def num_requested(self) -> int:
        """Number of requested fragments that have not arrived."""
        return sum(call.is_fragment for call in self._pending)

    def first_fragment(self) -> Call | None:
        """Return the earliest unanswered fragment request."""
        return next((call for call in self._pending if call.is_fragment), None)

    def receive(self, call: Call, timeout_s: float | None) -> Any:
        """Return the answer of a call, after the answers of all earlier calls.

        Raises:
            GetTimeoutError: The answer has not arrived yet.
            RayActorError: The process died; `restart` repeats the call.
        """
        ends = None if timeout_s is None else self._clock() + timeout_s
        while not call.is_answered:
            head = self._pending[0]
            try:
                left = None if ends is None else max(ends - self._clock(), 0.0)
                value = api.get(head.ref, timeout=left)
            except (GetTimeoutError, RayActorError):
                raise
            except Exception as error:
                self._pending.popleft()
                if not head.is_abandoned:
                    raise
                logger.warning("A call of env runner %d failed later: %s", self.index, error)
                continue
            self._pending.popleft()
            self.failures_in_row = 0
            value = self._answered(head, value)
            if self._pending:
                self._begin(self._pending[0])
            if head.is_fragment and head is not call:
                self.arrived.append(value)
            else:
                head.value, head.is_answered = value, True
        value, call.value = call.value, None
        return value

    def _answered(self, call: Call, value: object) -> Any:
        """Log an answered call; return its value."""
        is_full = call.method == "set_weights" and not call.args[2]
        while is_full and self._log and self._log[-1][0] == "set_weights":
            self._log.pop()  # no sample used them
        self._log.append((call.method, call.args))
        if len(self._log) > MAX_LOGGED_CALLS:
            self._note_state(b"")
        if call.method != "sample":
            return value
        state = None
        if type(value) is tuple:
            value, state = value
        if isinstance(value, StoredSample):
            assert self._reader is not None
            value = self._reader.read(value)
        if call.slot is not None:
            self._used_slots.discard(call.slot)
        if state is not None:
            self._note_state(state)
        return value

    def _open_memory(self) -> None:
        """Open the runner's memory as soon as its address is known."""
        if self._address is None or not api.wait([self._address], timeout=0)[0]:
            return
        try:
            address = api.get(self._address)
        except RayActorError:  # it died; the next call reports it
            return
        self._address = None
        if address is not None:
            try:
                self._reader = SampleReader(address)
            except OSError:  # another machine: samples are sent as objects
                pass

    def _note_state(self, state: bytes) -> None:
        self._note_lasting()
        self._log.clear()
        self._is_exact = bool(state)
        self._state = state or None

    def _note_lasting(self) -> None:
        """Keep module changes and weights, which states do not contain."""
        for method, args in self._log:
            if method == "change_modules":
                self._changes.append(args)
            if method == "set_weights":
                is_partial = args[2]
                self._weights = [*self._weights, args] if is_partial else [args]

    def progress(self) -> int | None:
        """Return the runner's number of steps so far, or None if unknown."""
        self._open_memory()
        return None if self._reader is None else self._reader.progress

    # -- failures

    def verdict(self) -> Verdict:
        """Return the action for the earliest unanswered call."""
        return self.detector.check(self._clock(), self.progress())

    def next_check_s(self) -> float | None:
        """Return the seconds until that action may change."""
        return self.detector.next_check_s(self._clock()) if self._pending else None

    def describe(self) -> str:
        """Describe the progress of the runner, for messages about slow calls."""
        now = self._clock()
        waited, still = self.detector.waited_s(now), self.detector.still_s(now)
        progress = self.progress()
        text = f"Env runner {self.index} has not answered for {waited:.0f} s"
        if progress is not None:
            text += f"; it took {progress} steps so far, the last one at least {still:.0f} s ago"
        stack = current_engine().stack_of(self.actor._actor_id)
        return f"{text}.\n{stack}" if stack else f"{text}."

    def restart(self) -> bool:
        """Start a new process that continues exactly, and repeat unanswered calls.

        After two consecutive failures the environments begin new episodes, because the old ones may
        have caused the failures. Return False in this case.
        """
        self.failures_in_row += 1
        is_exact = self._is_exact and self.failures_in_row == 1
        self._connect()
        if is_exact:
            self._replay()
        else:
            self._begin_again()
        for call in self._pending:
            call.slot = None
            self._send(call)
        return is_exact

    def _replay(self) -> None:
        self._send_lasting()
        if self._state is not None:
            self.actor.load_state.remote(self._state)
        for method, args in self._log:
            if method == "sample":
                self.actor.replay.remote(*args)
            elif method not in NOT_REPEATED:
                getattr(self.actor, method).remote(*args)

    def _begin_again(self) -> None:
        self._note_lasting()
        self._send_lasting()
        self._log.clear()
        self._state = None
        self._is_exact = False  # until the next state arrives
        self._samples_logged = self.samples_per_state

    def _send_lasting(self) -> None:
        for args in self._changes:
            self.actor.change_modules.remote(*args)
        for args in self._weights:
            self.actor.set_weights.remote(*args)
