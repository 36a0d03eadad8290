import os
import signal
from pathlib import Path

from syncline.serve.replica.ledger import LEAST_SLOTS, Ledger, read


def test_begun_calls_are_in_the_file_until_they_end(tmp_path: Path):
    path = str(tmp_path / "ledger")
    ledger = Ledger(path)
    first, second = ledger.begin(2**64 - 1), ledger.begin(7)
    assert read(path) == {2**64 - 1, 7}
    ledger.end(first)
    assert read(path) == {7}
    ledger.end(second)
    assert read(path) == frozenset()
    ledger.close()
    assert read(path) == frozenset()


def test_file_grows_when_no_slot_is_free(tmp_path: Path):
    path = str(tmp_path / "ledger")
    ledger = Ledger(path)
    slots = [ledger.begin(id) for id in range(1, 3 * LEAST_SLOTS)]
    assert len(set(slots)) == len(slots)
    assert read(path) == set(range(1, 3 * LEAST_SLOTS))
    assert ledger.statistics().used == len(slots)
    assert os.path.getsize(path) == 8 * ledger.statistics().slots
    ledger.close()


def test_ended_slots_are_used_again(tmp_path: Path):
    ledger = Ledger(str(tmp_path / "ledger"))
    for id in range(1, 10 * LEAST_SLOTS):
        ledger.end(ledger.begin(id))
    assert ledger.statistics().slots == LEAST_SLOTS
    ledger.close()


def test_file_of_a_predecessor_is_emptied(tmp_path: Path):
    path = str(tmp_path / "ledger")
    Ledger(path).begin(3)
    ledger = Ledger(path)
    assert read(path) == frozenset()
    ledger.close()


def test_file_survives_a_kill_of_its_process(tmp_path: Path):
    path = str(tmp_path / "ledger")
    pid = os.fork()
    if pid == 0:
        Ledger(path).begin(5)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert read(path) == {5}


def test_missing_file_tells_nothing(tmp_path: Path):
    assert read(str(tmp_path / "none")) is None
