"""Search programs of syncline on small inputs, and parts of the others without processes."""

from pathlib import Path

import pytest

from bench.programs.tune import controller_simulation
from bench.programs.tune.functions import FUNCTIONS
from bench.programs.tune.quality import asha_by_optuna, asha_by_us, excess, tpe_by_us
from bench.programs.tune.simulated_search import SimulatedSearch
from syncline.tune.schedulers import FIFOScheduler
from tests.bench.program_runs import keys_of, run

MINIMA = {
    "branin": (3.14159265, 2.275),
    "hartmann6": (0.20168952, 0.15001069, 0.47687398, 0.27533243, 0.31165162, 0.65730054),
    "rosenbrock": (1.0, 1.0, 1.0),
}


@pytest.mark.processes
def test_killed_search_resumes_and_repeats_no_trial(tmp_path: Path) -> None:
    values = run("tune.restore", "syncline", tmp_path, scale="0.001")
    assert keys_of("tune.restore") <= values.keys()
    assert values["run_again"] == 0


@pytest.mark.parametrize("name", MINIMA)
def test_functions_have_their_published_minimum(name: str) -> None:
    function = FUNCTIONS[name]
    point = {f"x{place}": value for place, value in enumerate(MINIMA[name])}
    assert function.regret(point) == pytest.approx(0, abs=1e-6)
    assert function.regret({**point, "x0": point["x0"] + 0.1}) > 1e-3


def test_simulated_search_stops_saves_and_survives_deaths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_simulation, "FAILURE_CHANCE", 0.1)
    search = controller_simulation.searched(200)
    iterations = {trial.iteration for trial in search.machine.trials}
    assert {1, controller_simulation.STEPS} <= iterations
    assert search.checkpoints > 0
    assert search.failures > 0


def test_simulated_search_runs_every_sample_to_its_end() -> None:
    ended = SimulatedSearch(
        controller_simulation.Counter(5),
        FIFOScheduler(),
        lambda config, step: config["x"] / step,
        steps=3,
        cpus=2,
    ).run()
    assert [(trial.status, trial.iteration) for trial in ended] == [("TERMINATED", 3)] * 5


def test_both_ashas_find_similar_regret_and_tpe_runs() -> None:
    function = FUNCTIONS["branin"]
    assert asha_by_us(function, seed=0) == pytest.approx(asha_by_optuna(function, seed=0), abs=2.0)
    assert 0 <= tpe_by_us(function, seed=0) < 20


def test_excess_is_in_standard_errors_of_the_difference() -> None:
    near, far = [1.0, 2.0, 3.0, 4.0, 5.0], [101.0, 102.0, 103.0, 104.0, 105.0]
    assert excess(near, near) == 0
    assert excess(far, near) > 10
    assert excess(near, far) < -10
