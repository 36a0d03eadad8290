"""Records of trials and their indexes by phase, during whole searches."""

from __future__ import annotations

import itertools
import random

import pytest

from syncline.core.state_machine import InvalidTransition
from syncline.tune.config import CheckpointConfig
from syncline.tune.controller.trial_table import TRANSITIONS, Phase
from syncline.tune.experiment.trial import Trial
from tests.tune.controller.simulation import Choosy, Simulation, rules, statuses


def test_indexes_by_phase_agree_with_the_records() -> None:
    choose = random.Random(1)
    search = Simulation(
        scheduler=Choosy({(2, 2): "PAUSE", (4, 1): "STOP", (5, 3): "PAUSE"}),
        samples=9,
        cpus=3,
        rules=rules(checkpoint_config=CheckpointConfig(checkpoint_frequency=1)),
    )
    search.begin()
    table = search.machine._table
    while search.ended is None:
        search.go_on(choose)
        by_phase = {record.trial.trial_id: phase for phase in Phase for record in table.of(phase)}
        assert by_phase == {
            trial.trial_id: table[trial.trial_id].phase for trial in search.machine.trials
        }
        for trial in search.machine.trials:
            record = table[trial.trial_id]
            assert (record.attempt is not None) == (record.phase in (Phase.RUNNING, Phase.LENDING))
            assert (trial in table.live) == (record.phase is not Phase.ENDED)
            assert trial.is_finished() == (record.phase is Phase.ENDED)


@pytest.mark.parametrize("seed", range(20))
def test_in_any_order_of_events_every_trial_ends_and_no_step_is_trained_twice(seed: int) -> None:
    choose = random.Random(seed)
    decisions = {
        (choose.randrange(12), choose.randrange(1, 5)): choose.choice(["PAUSE", "STOP"])
        for _ in range(8)
    }
    search = Simulation(
        scheduler=Choosy(decisions),
        samples=12,
        cpus=3,
        rules=rules(checkpoint_config=CheckpointConfig(checkpoint_frequency=1)),
    )
    search.run(choose)
    assert statuses(search) == [Trial.TERMINATED] * 12
    assert len(set(search.steps)) == len(search.steps)
    assert search.held == {}
    assert not search.machine._table.count(Phase.RUNNING, Phase.LENDING)


def test_every_phase_has_transitions_and_can_be_reached() -> None:
    assert set(TRANSITIONS) == set(Phase)
    reached = set(itertools.chain.from_iterable(TRANSITIONS.values()))
    assert set(Phase) - reached == {Phase.NEW}


def test_an_invalid_phase_is_an_error_that_names_the_trial_and_its_history() -> None:
    search = Simulation(rules=rules(), samples=1)
    search.run()
    (trial,) = search.machine.trials
    table = search.machine._table
    with pytest.raises(
        InvalidTransition, match=f"trial {trial.trial_id} cannot go from ended"
    ) as e:
        table.set_phase(table[trial.trial_id], Phase.RUNNING, "a late event")
    assert "new -> running: attempt 1" in str(e.value)
    assert table[trial.trial_id].phase is Phase.ENDED
