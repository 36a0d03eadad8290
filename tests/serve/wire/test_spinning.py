"""When a wait spins before it sleeps."""

from syncline.serve.wire.spinning import FEWEST_PAUSES, MOST_PAUSES, SpinLimit


def waits_without_spin(limit):
    """Return the number of waits until the next one that may spin; that one is not ended."""
    count = 0
    while not limit.allows():
        count += 1
    return count


def test_waits_spin_as_long_as_the_frame_is_found():
    limit = SpinLimit()
    for _ in range(100):
        assert limit.allows()
        limit.note(found=True)


def test_spins_in_vain_become_rare():
    limit = SpinLimit()
    pauses = []
    for _ in range(12):
        pauses.append(waits_without_spin(limit))
        limit.note(found=False)
    assert pauses[:4] == [0, FEWEST_PAUSES, 2 * FEWEST_PAUSES, 4 * FEWEST_PAUSES]
    assert pauses[-1] == MOST_PAUSES


def test_a_found_frame_makes_them_frequent_again():
    limit = SpinLimit()
    for _ in range(5):
        waits_without_spin(limit)
        limit.note(found=False)
    waits_without_spin(limit)
    limit.note(found=True)
    assert limit.allows()
    limit.note(found=False)
    assert waits_without_spin(limit) == FEWEST_PAUSES


def test_one_of_several_threads_spins():
    limit = SpinLimit()
    assert limit.allows()
    assert not limit.allows()
    limit.note(found=True)
    assert limit.allows()
