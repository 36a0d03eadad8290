import json
import random

import numpy as np
import pytest

from syncline.tune.schedulers import PopulationBasedTraining, PopulationBasedTrainingReplay
from syncline.tune.schedulers.pbt_replay import GLOBAL_FILE, PolicyLog, policy_file, read_policy
from tests.tune.schedulers.search_simulation import World, make_trial


def log_of(*steps):
    """(trial, donor, iteration) -> a log; every configuration names its step."""
    log = PolicyLog()
    for number, (trial, donor, iteration) in enumerate(steps):
        log.add(
            trial_id=trial,
            donor_id=donor,
            tags=(f"tag_{trial}", f"tag_{donor}"),
            iterations=(0, iteration),
            config={"from": donor, "before": number},
            changed={"step": number},
        )
    return log


def files(lines):
    contents = {}
    for name, line in lines:
        contents.setdefault(name, []).append(line)
    return contents


def test_lines_have_the_form_that_replays_read():
    contents = files(log_of(("a", "b", 7)).drain())
    assert (
        set(contents) == {GLOBAL_FILE, policy_file("a")} == {"pbt_global.txt", "pbt_policy_a.txt"}
    )
    assert json.loads(contents[GLOBAL_FILE][0]) == [
        "tag_a",
        "tag_b",
        0,
        7,
        {"from": "b", "before": 0},
        {"step": 0},
    ]
    assert contents[GLOBAL_FILE] == contents[policy_file("a")]


def test_lines_are_given_once():
    log = log_of(("a", "b", 7))
    assert log.drain()
    assert log.drain() == []


def test_a_policy_is_the_donors_history_and_then_the_own_step():
    """a copied c, b copied a, a copied b: a's weights were c's, then a's, then b's."""
    contents = files(log_of(("a", "c", 5), ("b", "a", 10), ("a", "b", 15), ("d", "b", 20)).drain())
    assert read_policy(contents[policy_file("a")], "a")[1] == [
        (5, {"step": 0}),
        (10, {"step": 1}),
        (15, {"step": 2}),
    ]
    assert read_policy(contents[policy_file("d")], "d")[1] == [
        (5, {"step": 0}),
        (10, {"step": 1}),
        (20, {"step": 3}),
    ]
    assert read_policy(contents[policy_file("b")], "b")[0] == {"from": "c", "before": 0}
    assert len(contents[GLOBAL_FILE]) == 4


def test_history_that_was_overwritten_is_not_read():
    """b copied a before a had a history; a then copied c, and then b: what a had from c is gone."""
    contents = files(log_of(("b", "a", 5), ("a", "c", 10), ("a", "b", 15)).drain())
    assert read_policy(contents[policy_file("a")], "a") == (
        {"from": "a", "before": 0},
        [(5, {"step": 0}), (15, {"step": 2})],
    )


def test_values_that_json_does_not_know_are_written_all_the_same():
    log = PolicyLog()
    config = {"lr": np.float32(0.5), "layers": np.array([1, 2]), "act": print}
    log.add(
        trial_id="a",
        donor_id="b",
        tags=("a", "b"),
        iterations=(0, 0),
        config=config,
        changed=config,
    )
    [_, (_, line)] = log.drain()
    assert json.loads(line)[4] == {"lr": 0.5, "layers": [1, 2], "act": "builtins.print"}


def replay(tmp_path, steps):
    path = tmp_path / "pbt_policy_x.txt"
    path.write_text("".join(json.dumps(step) + "\n" for step in steps))
    return PopulationBasedTrainingReplay(str(path))


POLICY = [["1", "2", 4, 3, {"lr": 1}, {"lr": 2}], ["0", "1", 9, 8, {"lr": 2}, {"lr": 4}]]


def test_the_trial_gets_each_configuration_at_its_iteration(tmp_path):
    seen = []

    def noting(trial, time):
        seen.append((time, trial.config["lr"]))
        return 0.0

    scheduler = replay(tmp_path, POLICY)
    world = World(scheduler, count=1, length=11, score=noting).run()
    assert seen == [
        (1, 1),
        (2, 1),
        (3, 1),
        *((time, 2) for time in range(4, 9)),
        (9, 4),
        (10, 4),
        (11, 4),
    ]
    assert scheduler.current_config == {"lr": 4}
    assert world.trials[0].experiment_tag == "0_replay_pbt_policy_x.txt@perturbed[lr=4]"
    assert scheduler.debug_string() == "PopulationBasedTraining replay: Step 10, perturb 2"


def test_changes_that_share_an_iteration_come_one_after_the_other(tmp_path):
    world = World(
        replay(tmp_path, [POLICY[0], ["0", "1", 9, 3, {"lr": 2}, {"lr": 4}]]), count=1, length=9
    ).run()
    assert [entry[1] for entry in world.exploits()] == [3, 4]


def test_what_pbt_has_found_is_trained_again(tmp_path):
    random.seed(0)
    objective = {"metric": "score", "mode": "max", "time_attr": "training_iteration"}
    pbt = PopulationBasedTraining(
        **objective,
        perturbation_interval=3,
        hyperparam_mutations={"lr": [1, 2, 3, 4]},
        quantile_fraction=0.5,
    )
    search = World(pbt, count=4, at_once=4, length=20, config=lambda index: {"lr": index}).run()
    contents = files(search.lines)
    name, lines = next((name, lines) for name, lines in contents.items() if name != GLOBAL_FILE)
    (tmp_path / name).write_text("\n".join(lines) + "\n")
    scheduler = PopulationBasedTrainingReplay(str(tmp_path / name))
    trial = next(trial for trial in search.trials if policy_file(trial.trial_id) == name)
    World(scheduler, count=1, length=30).run()
    assert scheduler.current_config == trial.config


def test_a_second_trial_is_refused_and_a_second_start_of_the_first_is_not(tmp_path):
    world = World(replay(tmp_path, POLICY))
    trial = world.add()
    world.scheduler.on_trial_add(world, trial)
    with pytest.raises(ValueError, match="trains one trial"):
        world.add()


def test_an_empty_policy_needs_a_configuration(tmp_path):
    world = World(replay(tmp_path, []))
    with pytest.raises(ValueError, match="give `param_space`"):
        world.add()
    world = World(replay(tmp_path, []))
    assert world.add(make_trial(0, {"lr": 5})).config == {"lr": 5}


def test_files_that_are_no_policy_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"does not exist\. Give the"):
        PopulationBasedTrainingReplay(str(tmp_path / "none.txt"))
    (tmp_path / "other.txt").write_text("[1, 2]\n")
    with pytest.raises(ValueError, match=r"other\.txt, line 1, is not a step of a PBT policy"):
        PopulationBasedTrainingReplay(str(tmp_path / "other.txt"))


def test_a_trial_without_a_checkpoint_cannot_go_on_with_other_values(tmp_path):
    world = World(replay(tmp_path, POLICY), count=1, length=9, saves=False)
    with pytest.raises(RuntimeError, match="has no checkpoint at iteration 3"):
        world.run()
