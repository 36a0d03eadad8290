"""A loop that stays awake for the next call."""

from collections import deque

from syncline.serve.wire.loop_spinner import LoopSpinner
from syncline.serve.wire.spinning import FEWEST_PAUSES, SPIN_S


class FakeLoop:
    """Callbacks, and a clock that a turn advances by a tenth of a spin."""

    def __init__(self) -> None:
        self.callbacks: deque = deque()
        self.now = 1.0

    def call_soon(self, callback) -> None:
        self.callbacks.append(callback)

    def turn(self) -> bool:
        """Run one turn; return False if the loop would sleep."""
        self.now += SPIN_S / 10
        for _ in range(len(self.callbacks)):
            self.callbacks.popleft()()
        return bool(self.callbacks)


def turns_until_sleep(loop):
    count = 1
    while loop.turn():
        count += 1
    return count


def spinner():
    loop = FakeLoop()
    return loop, LoopSpinner(loop, clock=lambda: loop.now)


def test_the_loop_sleeps_after_a_spin_in_vain():
    loop, spins = spinner()
    spins.start()
    assert 9 <= turns_until_sleep(loop) <= 11


def test_the_next_calls_do_not_spin_after_a_spin_in_vain():
    loop, spins = spinner()
    spins.start()
    turns_until_sleep(loop)
    for _ in range(FEWEST_PAUSES):
        spins.stop()
        spins.start()
        assert not loop.callbacks
    spins.stop()
    spins.start()
    assert loop.callbacks


def test_a_call_ends_the_spin_and_the_next_one_spins_too():
    loop, spins = spinner()
    for _ in range(50):
        spins.start()
        assert loop.turn()
        spins.stop()
        turns_until_sleep(loop)


def test_a_spin_that_begins_before_the_last_turn_of_another_has_its_own_end():
    loop, spins = spinner()
    spins.start()
    assert loop.turn()
    spins.stop()
    spins.start()
    assert len(loop.callbacks) == 1
    assert 9 <= turns_until_sleep(loop) <= 11
