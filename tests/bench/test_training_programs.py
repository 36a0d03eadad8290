"""Training programs of syncline on small inputs write all values that the table shows."""

from pathlib import Path

import pytest

from bench.inputs import write_numbers
from bench.programs import controller_simulation
from tests.bench.program_runs import keys_of, run


@pytest.mark.long
@pytest.mark.processes
def test_reports_in_all_modes(tmp_path: Path) -> None:
    values = run("report_modes", "syncline-local", tmp_path, scale="0.0001")
    assert keys_of("report_modes") <= values.keys()
    for key, committed_s in values.items():
        if key.endswith("_committed_s"):
            assert committed_s * 1e3 >= values[key.replace("_committed_s", "_ms")] > 0


@pytest.mark.long
@pytest.mark.processes
@pytest.mark.parametrize("reads", ["dataset", "loader"])
def test_resumed_run_repeats_no_sample(reads: str, tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    write_numbers(files, 4_000, files=4, features=8)
    values = run("resume", f"syncline-{reads}", tmp_path, files, scale="0.004")
    assert keys_of("resume") <= values.keys()
    assert values["repeated"] == 0


def test_the_simulated_controller_commits_fails_and_resizes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controller_simulation, "LEAST_EVENTS", 5_000)
    simulation = controller_simulation.Simulation(ranks=20)
    simulation.run()
    assert simulation.committed > 0
    assert simulation.failures > 0
    assert simulation.resizes > 0
