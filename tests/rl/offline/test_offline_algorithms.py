"""Offline algorithms on recorded data: where the data come from, resume, errors, and what is
learned.
"""

import glob

import gymnasium as gym
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import syncline
from syncline.rl.algorithm.algorithm import Algorithm
from syncline.rl.algorithms.bc import BCConfig
from syncline.rl.algorithms.cql import CQLConfig
from syncline.rl.algorithms.iql import IQLConfig
from syncline.rl.algorithms.marwil import MARWILConfig
from syncline.rl.algorithms.sac import SACConfig
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import leaves
from syncline.rl.modules.default_model_config import DefaultModelConfig
from tests.rl.offline.recordings import SCHEMA, cart_pole_rule, pendulum_rule, record

CONTINUOUS = {"cql": CQLConfig, "iql": IQLConfig, "marwil": MARWILConfig, "bc": BCConfig}


@pytest.fixture(scope="module", autouse=True)
def engine():
    syncline.init(num_cpus=2)
    yield
    syncline.shutdown()


@pytest.fixture(scope="module")
def pendulum_steps(tmp_path_factory):
    path = tmp_path_factory.mktemp("steps") / "pendulum.parquet"
    record(path, "Pendulum-v1", pendulum_rule, 600)
    return str(path)


@pytest.fixture(scope="module")
def pendulum_episodes(tmp_path_factory):
    """Record episodes of an untrained policy."""
    where = tmp_path_factory.mktemp("episodes")
    algo = (
        SACConfig()
        .environment("Pendulum-v1")
        .offline_data(output=str(where), output_max_rows_per_file=2)
        .evaluation(evaluation_duration=4)
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .debugging(seed=1)
        .build_algo()
    )
    algo.evaluate()
    algo.stop()
    found = sorted(glob.glob(str(where / "*" / "*")))
    assert found
    return found


def small(config_class, **data):
    return (
        config_class()
        .environment("Pendulum-v1")
        .offline_data(dataset_num_iters_per_learner=5, **data)
        .training(train_batch_size_per_learner=64)
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .debugging(seed=1)
    )


def weights(algo):
    return [np.asarray(leaf).copy() for leaf in leaves(algo.get_weights())]


@pytest.mark.processes
@pytest.mark.parametrize("name", CONTINUOUS)
def test_recorded_episodes_train(name, pendulum_episodes):
    config = small(CONTINUOUS[name], input_=pendulum_episodes, input_read_episodes=True)
    algo = config.build_algo()
    before = weights(algo)
    result = algo.train()
    assert result["learners"]["default_policy"]["num_module_steps_trained"] == 5 * 64
    assert np.isfinite(result["learners"]["default_policy"]["total_loss"])
    assert any((a != b).any() for a, b in zip(before, weights(algo), strict=True))
    algo.stop()


@pytest.mark.processes
@pytest.mark.parametrize("name", CONTINUOUS)
def test_restored_run_ends_with_the_same_weights(name, pendulum_steps, tmp_path):
    config = small(CONTINUOUS[name], input_=[pendulum_steps], input_read_schema=SCHEMA)
    algo = config.build_algo()
    for _ in range(3):  # 600 steps are 10 batches, so this is in the second pass
        algo.train()
    path = algo.save_to_path(tmp_path / "checkpoint")
    saved = weights(algo)
    for _ in range(3):
        algo.train()
    end = weights(algo)
    algo.stop()
    restored = Algorithm.from_checkpoint(path)
    for _ in range(3):
        restored.train()
    for a, b in zip(weights(restored), end, strict=True):
        np.testing.assert_array_equal(a, b)
    assert any((a != b).any() for a, b in zip(saved, end, strict=True))
    restored.stop()


@pytest.mark.processes
def test_actions_of_the_environment_are_normalized(pendulum_steps):
    def batch(**options):
        config = small(BCConfig, input_=[pendulum_steps], input_read_schema=SCHEMA, **options)
        algo = config.build_algo()
        actions = next(algo._batches(1))[Columns.ACTIONS]
        algo.stop()
        return actions

    given, normalized = batch(actions_in_input_normalized=True), batch()
    assert np.abs(given).max() > 1.5
    np.testing.assert_allclose(normalized, given / 2.0, rtol=1e-5)


@pytest.mark.processes
def test_no_environment_is_needed(pendulum_steps):
    config = small(IQLConfig, input_=[pendulum_steps], input_read_schema=SCHEMA)
    config.environment(
        env=None,
        observation_space=gym.spaces.Box(-np.inf, np.inf, (3,)),
        action_space=gym.spaces.Box(-2.0, 2.0, (1,)),
    )
    config.env = None
    algo = config.build_algo()
    assert np.isfinite(algo.train()["learners"]["default_policy"]["total_loss"])
    with pytest.raises(ValueError, match="Evaluation needs an environment"):
        algo.evaluate()
    algo.stop()
    config.observation_space = None
    with pytest.raises(ValueError, match=r"the spaces must be given"):
        config.build_algo()


@pytest.mark.processes
def test_missing_columns_are_named(tmp_path):
    path = tmp_path / "few.parquet"
    pq.write_table(pa.table({"obs": [[0.0] * 3] * 8, "actions": [[0.0]] * 8}), path)
    algo = small(IQLConfig, input_=[str(path)]).build_algo()
    with pytest.raises(ValueError, match=r"IQL needs the columns .*'new_obs'.*input_read_schema"):
        algo.train()
    algo.stop()
    with pytest.raises(ValueError, match=r"Returns need the columns \['eps_id'"):
        small(MARWILConfig, input_=[str(path)]).build_algo()


def learn(config, path, env, size, hidden=64):
    """Return the best greedy return of several evaluations while learning."""
    algo = (
        config.environment(env)
        .offline_data(input_=[path], input_read_schema=SCHEMA, dataset_num_iters_per_learner=300)
        .training(train_batch_size_per_learner=size)
        .rl_module(
            model_config=DefaultModelConfig(fcnet_hiddens=[hidden] * 2, fcnet_activation="relu")
        )
        .evaluation(evaluation_duration=10, evaluation_config={"explore": False})
        .debugging(seed=1)
        .build_algo()
    )
    found = []
    for _ in range(9):
        algo.train()
        found.append(algo.evaluate()["env_runners"]["episode_return_mean"])
    algo.stop()
    return float(np.mean(found[-3:]))


@pytest.mark.long
@pytest.mark.parametrize("config", [BCConfig, MARWILConfig])
def test_imitation_of_a_mediocre_policy_is_better_than_its_mean(config, tmp_path):
    path = str(tmp_path / "cart_pole.parquet")
    mean = record(path, "CartPole-v1", cart_pole_rule, 6000)
    assert mean < 150
    assert learn(config().training(lr=1e-3), path, "CartPole-v1", 256) > mean + 100


@pytest.mark.long
@pytest.mark.parametrize("name", ["iql", "cql"])
def test_values_of_a_mediocre_policy_give_a_much_better_one(name, tmp_path):
    path = str(tmp_path / "pendulum.parquet")
    mean = record(path, "Pendulum-v1", pendulum_rule, 20_000)
    assert mean < -600
    iql = IQLConfig().training(
        beta=0.3, tau=0.005, gamma=0.98, actor_lr=1e-3, critic_lr=1e-3, value_lr=1e-3
    )
    cql = CQLConfig().training(
        bc_iters=200,
        actor_lr=1e-3,
        initial_alpha=0.2,
        tau=0.02,
        gamma=0.98,
        num_actions=4,
        min_q_weight=1.0,
    )
    found = learn({"iql": iql, "cql": cql}[name], path, "Pendulum-v1", 64)
    assert found > mean + 200
