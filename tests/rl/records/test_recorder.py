"""The record of an algorithm that runs outside of a search."""

import json
import os
import signal
from pathlib import Path

import pytest

from syncline import runs
from syncline.rl.algorithm.algorithm import Algorithm
from syncline.rl.algorithms.ppo import PPOConfig
from syncline.runs.run_list import list_runs
from syncline.runs.run_storage import open_directory

pytest.importorskip("gymnasium")


def config(**reporting):
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=2)
        .training(train_batch_size_per_learner=64, minibatch_size=32, num_epochs=1)
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .debugging(seed=1)
        .reporting(**reporting)
    )


@pytest.fixture(autouse=True)
def storage(tmp_path, monkeypatch):
    monkeypatch.setenv("SYNCLINE_STORAGE_PATH", str(tmp_path / "runs"))
    return tmp_path / "runs"


def test_training_leaves_a_run_of_kind_rl(storage):
    algo = config().build_algo()
    assert not storage.exists()
    results = [algo.train(), algo.train()]
    running = runs.open(algo.run_path)
    assert running.state == "running"
    algo.stop()
    run = runs.open(algo.run_path)
    assert (run.kind, run.state) == ("rl", "finished")
    assert Path(algo.run_path).parent == storage
    assert run.name.startswith("PPO_CartPole-v1_")
    assert run.config["algorithm"] == "PPO"
    assert run.config["train_config"]["num_epochs"] == 1
    assert "gamma" not in run.config["train_config"]
    assert run.config["all_options"]["gamma"] == 0.99
    last = run.series.last("0")
    name = "learners/default_policy/entropy"
    assert last[name] == results[1]["learners"]["default_policy"]["entropy"]
    assert next(iter(last)) == "env_runners/episode_return_mean"
    assert run.series.points(name, "0").iterations.tolist() == [0.0, 1.0]
    assert last["time_split/total_s"] >= last["time_split/learning_s"] > 0
    assert last["time_split/environment_s"] > 0
    assert last["time_split/sampling_s"] >= last["time_split/environment_s"]


def test_scalars_of_tensorboard_have_the_flat_names_of_results():
    algo = config().build_algo()
    algo.train()
    algo.stop()
    (file,) = Path(algo.run_path).glob("events.out.tfevents.*")
    content = file.read_bytes()
    for tag in (b"env_runners/episode_len_mean", b"learners/default_policy/policy_loss"):
        assert tag in content


def test_episodes_and_runners_are_recorded(storage):
    algo = config().build_algo()
    algo.train()
    algo.stop()
    lines = (Path(algo.run_path) / "rl/episodes.jsonl").read_text().splitlines()
    episodes = json.loads(lines[0])["episodes"]
    assert episodes
    assert all(each["return"] == each["length"] for each in episodes)
    (sample,) = runs.open(algo.run_path).samples["0"]
    assert sample["spent"]["env_steps"] == 64
    assert sample["spent"]["environment_s"] > 0
    assert sample["usage"]["rss_bytes"] > 0


def test_evaluations_and_checkpoints_are_events(tmp_path):
    algo = config().evaluation(evaluation_interval=2, evaluation_duration=2).build_algo()
    for _ in range(2):
        algo.train()
    path = algo.save_to_path(str(tmp_path / "checkpoint"))
    algo.stop()
    events = {each["event"]: each for each in runs.open(algo.run_path).events}
    assert list(events) == ["started", "evaluation", "checkpoint", "finished"]
    assert events["evaluation"]["num_episodes"] == 2
    assert events["evaluation"]["iteration"] == 1
    assert events["checkpoint"]["path"] == path


def test_an_error_is_the_outcome():
    def fail(**_):
        raise ZeroDivisionError("no such luck")

    algo = config().callbacks(on_train_result=fail).build_algo()
    with pytest.raises(ZeroDivisionError):
        algo.train()
    algo.stop()
    run = runs.open(algo.run_path)
    assert run.state == "errored"
    assert "no such luck" in run.outcome["error"]


def test_an_error_that_the_program_overcomes_is_an_event_only():
    fails = [True, False]

    def fail(**_):
        if fails.pop(0):
            raise ZeroDivisionError("once")

    algo = config().callbacks(on_train_result=fail).build_algo()
    with pytest.raises(ZeroDivisionError):
        algo.train()
    algo.train()
    algo.stop()
    run = runs.open(algo.run_path)
    assert run.state == "finished"
    assert [each["event"] for each in run.events] == ["started", "failure", "finished"]


def test_a_restored_algorithm_continues_the_record_of_its_name(storage):
    algo = config(record=str(storage / "cart")).build_algo()
    for _ in range(3):
        algo.train()
        path = algo.save_to_path(f"{algo.run_path}/checkpoint_{algo.training_iteration:06d}")
    algo.train()
    del algo  # as if it was killed: iteration 4 is in the record, and in no checkpoint
    again = Algorithm.from_checkpoint(path)
    again.train()
    again.stop()
    run = runs.open(storage / "cart")
    assert run.state == "finished"
    started = [each["continued"] for each in run.events if each["event"] == "started"]
    assert started == [False, True]
    names = [each["name"] for each in run.checkpoints]
    assert names == ["checkpoint_000001", "checkpoint_000002", "checkpoint_000003"]
    iterations = run.series.points("num_env_steps_sampled_lifetime", "0").iterations
    assert iterations.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("way", ["option", "variable"])
def test_the_record_can_be_turned_off(way, storage, monkeypatch):
    if way == "variable":
        monkeypatch.setenv("SYNCLINE_RL_RECORD", "0")
    algo = config(**({"record": False} if way == "option" else {})).build_algo()
    algo.train()
    algo.stop()
    assert algo.run_path is None
    assert not storage.exists()


def test_a_named_record_is_found_by_its_name(storage):
    algo = config(record="my-run").build_algo()
    algo.train()
    algo.stop()
    (summary,) = list_runs(open_directory(str(storage)))
    assert (summary.name, summary.kind, summary.reports) == ("my-run", "rl", 1)


def test_a_record_that_cannot_be_written_does_not_stop_the_training(storage, caplog):
    storage.parent.mkdir(exist_ok=True)
    storage.write_text("a file where the directory should be")
    algo = config().build_algo()
    assert algo.train()["training_iteration"] == 1
    assert algo.train()["training_iteration"] == 2
    algo.stop()
    assert sum("cannot be written" in each.message for each in caplog.records) == 1


def test_trials_of_searches_write_no_record_of_their_own(storage, tmp_path):
    from syncline.tune.trainable.trainable_state import TrialInfo

    info = TrialInfo(trial_dir=str(tmp_path / "trial"))
    algo = config().algo_class(config().to_dict(), info=info)
    result = algo.train()
    algo.stop()
    assert algo.run_path is None
    assert not storage.exists()
    assert result["time_split"]["total_s"] > 0


@pytest.mark.processes
def test_a_killed_runner_is_an_event_and_its_successor_a_new_attempt():
    algo = config().env_runners(num_env_runners=2).build_algo()
    algo.train()
    (pid,) = algo.env_runner_group.foreach_env_runner(
        lambda runner: os.getpid(), remote_worker_ids=[2], local_env_runner=False
    )
    os.kill(pid, signal.SIGKILL)
    clock = algo._recorder._clock
    algo._recorder._clock = lambda: clock() + 60
    algo.train()
    algo.stop()
    run = runs.open(algo.run_path)
    (event,) = [each for each in run.events if each["event"] == "env_runner_restarted"]
    assert event["runner"] == 2
    assert [sample["attempt"] for sample in run.samples["1"]] == [1, 1]
    before, after = run.samples["2"]
    assert (before["attempt"], before["pid"], after["attempt"]) == (1, pid, 2)
    assert after["pid"] != pid
