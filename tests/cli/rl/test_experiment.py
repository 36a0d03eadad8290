"""Experiments from options, YAML files and Python files."""

import pytest

from syncline.cli.output import CommandError
from syncline.cli.rl.experiment import from_file, from_options

pytest.importorskip("gymnasium")


def test_options_become_the_configuration():
    found = from_options("PPO", "CartPole-v1", {"lr": 0.01, "num_sgd_iter": 3})
    assert (found.algorithm, found.config.env) == ("PPO", "CartPole-v1")
    assert (found.config.lr, found.config.num_epochs) == (0.01, 3)
    assert not found.is_search


def test_unknown_names_are_errors_with_the_nearest_one():
    with pytest.raises(CommandError, match="Did you mean 'PPO'"):
        from_options("PPOO", "CartPole-v1", {})
    with pytest.raises(CommandError, match="PPO has no option 'num_epoch'. Did you mean"):
        from_options("PPO", "CartPole-v1", {"num_epoch": 3})


YAML = """
cartpole-ppo:
    run: PPO
    env: CartPole-v1
    stop: {episode_reward_mean: 150}
    checkpoint_freq: 5
    config: {lr: 0.001, num_workers: 0}
search:
    run: DQN
    config:
        env: CartPole-v1
        lr: {grid_search: [0.1, 0.01]}
"""


def test_a_yaml_file_has_the_experiments_of_rllib(tmp_path):
    pytest.importorskip("yaml")
    file = tmp_path / "x.yaml"
    file.write_text(YAML)
    first, second = from_file(str(file))
    assert (first.name, first.algorithm, first.config.lr) == ("cartpole-ppo", "PPO", 0.001)
    assert (first.stop, first.checkpoint_freq) == ({"episode_reward_mean": 150}, 5)
    assert first.config.num_env_runners == 0
    assert not first.is_search
    assert (second.algorithm, second.config.env, second.is_search) == ("DQN", "CartPole-v1", True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x: {env: CartPole-v1}", "'x' has no `run`"),
        ("x: {run: PPO, stopp: {}}", "Did you mean 'stop'"),
        ("[1, 2]", "has no experiments"),
        ("x: [", "is no YAML"),
    ],
)
def test_yaml_that_is_no_experiment_says_what_is_wrong(tmp_path, text, words):
    pytest.importorskip("yaml")
    file = tmp_path / "x.yaml"
    file.write_text(text)
    with pytest.raises(CommandError, match=words):
        from_file(str(file))


def test_a_python_file_defines_config_and_stop(tmp_path):
    file = tmp_path / "x.py"
    file.write_text(
        "from syncline.rllib.algorithms.ppo import PPOConfig\n"
        "config = PPOConfig().environment('CartPole-v1').training(lr=0.02)\n"
        "stop = {'training_iteration': 2}\n"
    )
    (found,) = from_file(str(file))
    assert (found.algorithm, found.config.lr) == ("PPO", 0.02)
    assert found.stop == {"training_iteration": 2}
    file.write_text("configuration = 3")
    with pytest.raises(CommandError, match="defines no `config`"):
        from_file(str(file))
