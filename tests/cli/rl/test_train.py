"""`rl train`: a training from the command line, its run, and how it continues."""

import json
import re
from pathlib import Path

import pytest

from syncline import runs
from syncline.cli.rl.listing import DESCRIPTIONS

pytest.importorskip("gymnasium")

SMALL = (
    *("--algo", "PPO", "--env", "CartPole-v1", "--num-env-runners", "0", "--seed", "1"),
    *("--set", "train_batch_size_per_learner=64", "--set", "minibatch_size=32"),
    *("--set", "num_epochs=1", "--config", '{"model_config": {"fcnet_hiddens": [8]}}'),
)


@pytest.fixture
def train(syncline_command, tmp_path):
    def run(*arguments):
        return syncline_command("rl", "train", *arguments, "--storage-path", str(tmp_path / "runs"))

    return run


def test_a_training_is_a_run_that_ends_by_its_criterion_and_prints_its_checkpoint(train, tmp_path):
    done = train(*SMALL, "--name", "cart", "--stop-iters", "3", "--checkpoint-freq", "2")
    assert done.exit_code == 0, done.output
    assert "ended: training_iteration = 3 has reached 3" in done.stderr
    checkpoint = Path(done.stdout.strip())
    assert checkpoint == tmp_path / "runs" / "cart" / "checkpoint_000003"
    run = runs.open(tmp_path / "runs" / "cart")
    assert (run.kind, run.state, run.summary.reports) == ("rl", "finished", 3)
    names = [each["name"] for each in run.checkpoints]
    assert names == ["checkpoint_000002", "checkpoint_000003"]
    assert run.config["train_config"]["seed"] == 1


def test_a_resumed_training_continues_its_run(train, tmp_path):
    train(*SMALL, "--name", "cart", "--stop-iters", "2")
    done = train("--resume", "cart", "--stop-timesteps", str(64 * 4))
    assert done.exit_code == 0, done.output
    run = runs.open(tmp_path / "runs" / "cart")
    steps = run.series.points("num_env_steps_sampled_lifetime", "0")
    assert steps.values.tolist() == [64, 128, 192, 256]


def test_a_name_that_exists_is_not_overwritten(train):
    train(*SMALL, "--name", "cart", "--stop-iters", "1")
    again = train(*SMALL, "--name", "cart", "--stop-iters", "1")
    assert again.exit_code == 1
    assert "--resume cart" in again.stderr


def test_a_name_leads_to_no_other_directory(train, tmp_path):
    refused = train(*SMALL, "--name", "../../q", "--stop-iters", "1")
    assert refused.exit_code == 1
    assert "the name '../../q' of the run must name one directory" in refused.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "give --algo and --env"),
        (("--algo", "PPOO", "--env", "CartPole-v1"), 1, "Did you mean 'PPO'"),
        (("--algo", "PPO", "--env", "CartPol-v1"), 1, "Did you mean 'CartPole-v1'"),
        (("--algo", "PPO", "--env", "CartPole-v1", "--set", "lrr=1"), 1, "Did you mean 'lr'"),
        (("--algo", "PPO", "--env", "CartPole-v1", "--stop", "5"), 2, "no JSON object"),
        (("--algo", "PPO", "--env", "CartPole-v1", "--set", "lr"), 2, "is not NAME=VALUE"),
        (("x.yaml",), 2, "there is no file 'x.yaml'"),
        (("--resume", "cart"), 1, "There is no run 'cart'"),
        (("--resume", "cart", "--algo", "PPO"), 2, "stop criteria only"),
        ((*SMALL, "--stop", '{"training_iterations": 1}'), 1, "Did you mean 'training_iteration'"),
    ],
)
def test_mistakes_are_told_with_the_remedy(train, arguments, code, words):
    done = train(*arguments)
    assert done.exit_code == code, done.output
    assert words in done.stderr


def test_algorithms_are_listed_with_a_line_each(syncline_command):
    done = syncline_command("rl", "list", "--json")
    found = json.loads(done.output)["algorithms"]
    assert next(iter(found)) == "PPO"
    assert all(found.values())
    assert "replay" in found["DQN"]


def test_every_algorithm_that_is_not_retired_has_a_line():
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    group = text.partition('"syncline.trainables"]')[2].partition("\n[")[0]
    named = dict(re.findall(r'^"?([\w/]+)"? = "([\w.]+):\w+"$', group, re.MULTILINE))
    current = {name for name, place in named.items() if "retired" not in place and "/" not in name}
    assert current == set(DESCRIPTIONS)


@pytest.mark.processes
def test_several_samples_are_a_search_with_a_checkpoint_each(train, tmp_path):
    done = train(*SMALL[:-2], "--num-samples", "2", "--name", "many", "--stop-iters", "2")
    assert done.exit_code == 0, done.output
    run = runs.open(tmp_path / "runs" / "many")
    assert (run.kind, run.state) == ("tune", "finished")
    assert run.summary.trials["TERMINATED"] == 2
    checkpoints = done.stdout.split()
    assert len(checkpoints) == 2
    assert all((Path(each) / "rllib_checkpoint.json").exists() for each in checkpoints)


@pytest.mark.processes
def test_a_grid_in_a_file_is_a_search(train, tmp_path):
    pytest.importorskip("yaml")
    file = tmp_path / "x.yaml"
    file.write_text(
        "grid: {run: PPO, env: CartPole-v1, stop: {training_iteration: 1}, config: {num_workers: 0,"
        " train_batch_size: 64, minibatch_size: 32, num_epochs: 1, lr: {grid_search: [0.1, 0.2]}}}"
    )
    done = train("file", str(file))
    assert done.exit_code == 0, done.output
    run = runs.open(tmp_path / "runs" / "grid")
    assert run.summary.trials["TERMINATED"] == 2
