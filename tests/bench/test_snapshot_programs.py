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


def test_save_waits_as_long_as_a_snapshot(tmp_path: Path) -> None:
    values = run("save_stall", "syncline", tmp_path)
    assert keys_of("save_stall") <= values.keys()
    assert min(values["save_ms"], values["snapshot_ms"], values["ratio"]) > 0


def test_kills_lose_no_sample_and_do_not_change_the_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_KILLS", "2")
    monkeypatch.setenv("BENCH_KILL_DISTANCE_S", "1")
    values = run("kills", "syncline", tmp_path)
    assert keys_of("kills") <= values.keys()
    assert (values["wrong_samples"], values["differs"]) == (0, 0)
    assert values["repeated"] <= 1
    assert 0 < values["goodput"] < 100


def test_watch_overhead(tmp_path: Path) -> None:
    values = run("watch_overhead", "syncline", tmp_path)
    assert keys_of("watch_overhead") <= values.keys()
    assert 0 < values["watch_percent"] <= values["percent"]
    assert values["calls_per_step"] == 1


def test_loaders_of_other_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_KILLS", "1")
    values = run("loader_resume", "syncline", tmp_path)
    assert keys_of("loader_resume") <= values.keys()
    assert (values["lost"], values["repeated"]) == (0, 0)
    assert values["loaders"] >= 4
