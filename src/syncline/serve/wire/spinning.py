"""`SpinLimit`: whether a wait for the next frame begins with a spin. Pure.

A process that sleeps until a frame comes is woken by the other one, which takes longer than a short
call: about 50 microseconds if they are on two processors. A process that keeps looking for `SPIN_S`
instead finds the frame at once. It gains nothing if the processors are busy, because the other
process may need the one on which this process spins, or if the frame takes long. So each spin in
vain is followed by waits that do not spin: 16 at first, twice as many after each further one.
"""

from __future__ import annotations

SPIN_S = 0.000_15
"""Seconds of a spin."""
FEWEST_PAUSES = 16
MOST_PAUSES = 4096


class SpinLimit:
    """The recent spins of one place that waits.

    Threads may share it: one of them spins at a time.
    """

    __slots__ = ("_is_used", "_left", "_pauses")

    def __init__(self) -> None:
        self._pauses = FEWEST_PAUSES
        self._left = 0
        self._is_used = False

    def allows(self) -> bool:
        """Return True if this wait may spin; `note` the end of the spin. Call it once a wait."""
        if self._is_used:
            return False
        if self._left:
            self._left -= 1
            return False
        self._is_used = True
        return True

    def note(self, *, found: bool) -> None:
        """Record the end of a spin: the frame came, or it did not."""
        self._is_used = False
        if found:
            self._pauses = FEWEST_PAUSES
        else:
            self._left = self._pauses
            self._pauses = min(2 * self._pauses, MOST_PAUSES)
