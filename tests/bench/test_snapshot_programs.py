"""Programs of memory snapshots on small inputs write all values that the table shows."""

from pathlib import Path

import pytest

from tests.bench.program_runs import keys_of, run

pytestmark = [pytest.mark.long, pytest.mark.processes]


def test_stall(tmp_path: Path) -> None:
    values = run("snapshot_stall", "syncline", tmp_path)
    assert keys_of("snapshot_stall") <= values.keys()


def test_recovery_repeats_at_most_one_step(tmp_path: Path) -> None:
    values = run("snapshot_recovery", "syncline", tmp_path)
    assert keys_of("snapshot_recovery") <= values.keys()
    assert 0 <= values["repeated"] <= 1


def test_saved_checkpoint(tmp_path: Path) -> None:
    values = run("saved_checkpoint", "syncline-local", tmp_path)
    assert keys_of("saved_checkpoint") <= values.keys()
    assert values["committed_s"] * 1e3 >= values["stall_ms"] > 0
