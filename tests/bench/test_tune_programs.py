"""Programs that search: ours run on little, and the parts of the others that need no process."""

from pathlib import Path

import pytest

from bench.programs.tune import controller_simulation
from bench.programs.tune.functions import FUNCTIONS
from bench.programs.tune.quality import asha_by_optuna, asha_by_us, tpe_by_us, worse
from bench.programs.tune.rehearsal import Rehearsal
from syncline.tune.schedulers import FIFOScheduler
from tests.bench.program_runs import keys_of, run

MINIMA = {
    "branin": (3.14159265, 2.275),
    "hartmann6": (0.20168952, 0.15001069, 0.47687398, 0.27533243, 0.31165162, 0.65730054),
    "rosenbrock": (1.0, 1.0, 1.0),
}


@pytest.mark.processes
def test_a_killed_search_trains_again_and_repeats_no_trial(tmp_path: Path) -> None:
    values = run("tune.restore", "syncline", tmp_path, scale="0.001")
    assert keys_of("tune.restore") <= values.keys()
    assert values["run_again"] == 0


@pytest.mark.parametrize("name", MINIMA)
def test_functions_have_their_minimum_where_the_literature_has_it(name: str) -> None:
    function = FUNCTIONS[name]
    point = {f"x{place}": value for place, value in enumerate(MINIMA[name])}
    assert function.regret(point) == pytest.approx(0, abs=1e-6)
    assert function.regret({**point, "x0": point["x0"] + 0.1}) > 1e-3


def test_the_simulated_search_stops_some_trials_saves_others_and_outlives_deaths(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controller_simulation, "FAILURE_CHANCE", 0.1)
    rehearsal = controller_simulation.rehearsed(200)
    iterations = {trial.iteration for trial in rehearsal.machine.trials}
    assert {1, controller_simulation.STEPS} <= iterations
    assert rehearsal.checkpoints > 0
    assert rehearsal.failures > 0


def test_a_rehearsal_runs_every_sample_to_its_end() -> None:
    ended = Rehearsal(
        controller_simulation.Numbers(5),
        FIFOScheduler(),
        lambda config, step: config["x"] / step,
        steps=3,
        cpus=2,
    ).run()
    assert [(trial.status, trial.iteration) for trial in ended] == [("TERMINATED", 3)] * 5


def test_the_same_points_under_either_asha_find_something_similar_and_tpe_runs() -> None:
    function = FUNCTIONS["branin"]
    assert asha_by_us(function, seed=0) == pytest.approx(asha_by_optuna(function, seed=0), abs=2.0)
    assert 0 <= tpe_by_us(function, seed=0) < 20


def test_medians_are_compared_in_standard_errors_of_their_difference() -> None:
    near, far = [1.0, 2.0, 3.0, 4.0, 5.0], [101.0, 102.0, 103.0, 104.0, 105.0]
    assert worse(near, near) == 0
    assert worse(far, near) > 10
    assert worse(near, far) < -10
