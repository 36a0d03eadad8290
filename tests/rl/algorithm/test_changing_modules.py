"""Modules that are added and removed while an algorithm runs."""

import os
import signal

import numpy as np
import pytest

from syncline import runs
from syncline.core import api
from syncline.rl.algorithm.algorithm import Algorithm
from syncline.rl.algorithms.dqn import DQNConfig
from syncline.rl.algorithms.ppo import PPOConfig
from syncline.rl.columns.trees import leaves
from syncline.rl.envs.examples.multi_agent import MultiAgentCartPole
from syncline.rl.modules.rl_module import RLModule, RLModuleSpec


def ppo(num_env_runners=0):
    return (
        PPOConfig()
        .environment(MultiAgentCartPole, env_config={"num_agents": 2})
        .env_runners(num_env_runners=num_env_runners, num_envs_per_env_runner=2)
        .multi_agent(
            policies={"main", "other"},
            policy_mapping_fn=lambda agent, episode, **_: ("main", "other")[int(agent)],
            policies_to_train=["main"],
        )
        .training(train_batch_size_per_learner=100, minibatch_size=50, num_epochs=2, lr=0.01)
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .debugging(seed=3)
    )


def to_copy(agent, episode, **_):
    return ("main", "copy")[int(agent)]


def add_copy(algo, **options):
    spec = RLModuleSpec.from_module(algo.get_module("main"))
    return algo.add_module("copy", spec, new_agent_to_module_mapping_fn=to_copy, **options)


def weights(algo, module_id="main"):
    return np.concatenate([np.ravel(x) for x in leaves(algo.get_weights([module_id])[module_id])])


def until(algo, module_id):
    """Train until a module has sampled; return the result."""
    for _ in range(20):
        result = algo.train()
        if module_id in result["env_runners"]["num_module_steps_sampled"]:
            return result
    raise AssertionError(f"no agent acts with {module_id}")


def test_an_added_module_acts_in_new_episodes_and_learns():
    algo = ppo().build_algo()
    algo.train()
    specs = add_copy(algo, new_should_module_be_updated=["main", "copy"])
    assert set(specs.rl_module_specs) == {"main", "other", "copy"}
    before = weights(algo, "copy")
    result = until(algo, "copy")
    assert "copy" in result["learners"]
    assert not np.array_equal(weights(algo, "copy"), before)
    algo.stop()


def test_an_added_module_that_is_not_trained_keeps_its_weights_and_overrides_hold():
    algo = ppo().build_algo()
    add_copy(algo, config_overrides={"gamma": 0.5})
    assert algo.config.get_config_for_module("copy").gamma == 0.5
    algo.set_weights({"copy": algo.get_weights(["main"])["main"]})
    before = weights(algo, "copy")
    until(algo, "copy")
    assert np.array_equal(weights(algo, "copy"), before)
    assert not np.array_equal(weights(algo), before)
    algo.stop()


def test_callbacks_add_modules_and_set_their_state_as_in_rllib(tmp_path, monkeypatch):
    monkeypatch.setenv("SYNCLINE_STORAGE_PATH", str(tmp_path))

    def on_train_result(algorithm, result, **_):
        if result["training_iteration"] == 1:
            add_copy(algorithm)
            state = algorithm.get_module("main").get_state()
            algorithm.set_state({"learner_group": {"learner": {"rl_module": {"copy": state}}}})

    algo = ppo().callbacks(on_train_result=on_train_result).reporting(record=True).build_algo()
    algo.train()
    assert np.array_equal(weights(algo), weights(algo, "copy"))
    until(algo, "copy")
    events = [each for each in runs.open(algo.run_path).events if each["event"] == "module_added"]
    assert [each["module"] for each in events] == ["copy"]
    algo.stop()


def test_a_removed_module_is_gone_and_its_agents_begin_new_episodes():
    algo = ppo().build_algo()
    algo.train()
    spec = RLModuleSpec.from_module(algo.get_module("main"))
    algo.add_module("copy", spec)
    algo.remove_module("other", new_agent_to_module_mapping_fn=to_copy)
    assert set(algo.get_weights()) == {"main", "copy"}
    assert "copy" in algo.train()["env_runners"]["num_module_steps_sampled"]
    assert algo.get_module("other") is None
    algo.stop()


@pytest.mark.parametrize("is_before", [True, False])
def test_evaluations_have_the_changed_modules(is_before):
    algo = ppo().evaluation(evaluation_duration=2).build_algo()
    if is_before:
        algo.evaluate()
    add_copy(algo)
    found = algo.evaluate()["env_runners"]["module_episode_returns_mean"]
    assert set(found) == {"main", "copy"}
    algo.stop()


class Left(RLModule):
    """A rule without weights."""

    def _forward(self, batch, **kwargs):
        return {"actions": np.zeros(len(batch["obs"]), np.int64)}


def test_rules_without_weights_are_modules():
    algo = ppo().build_algo()
    algo.add_module("copy", RLModuleSpec(Left), new_agent_to_module_mapping_fn=to_copy)
    until(algo, "copy")
    assert algo.compute_single_action(np.zeros(4, np.float32), policy_id="copy") == 0
    restored = Algorithm.from_checkpoint(algo.save_to_path())
    assert isinstance(restored.get_module("copy"), Left)
    algo.stop()
    restored.stop()


def test_replay_learns_beside_a_rule():
    made = (
        DQNConfig()
        .environment(MultiAgentCartPole, env_config={"num_agents": 2})
        .multi_agent(policies={"main", "other"}, policies_to_train=["main"])
        .multi_agent(policy_mapping_fn=lambda agent, *_, **__: ("main", "other")[int(agent)])
        .training(num_steps_sampled_before_learning_starts=20, target_network_update_freq=10)
        .reporting(min_sample_timesteps_per_iteration=40)
        .rl_module(model_config={"fcnet_hiddens": [8]})
    )
    algo = made.build_algo()
    algo.add_module("copy", RLModuleSpec(Left), new_agent_to_module_mapping_fn=to_copy)
    before = weights(algo)
    until(algo, "copy")
    assert not np.array_equal(weights(algo), before)
    algo.remove_module("other", new_agent_to_module_mapping_fn=to_copy)
    algo.train()
    algo.stop()


def test_impossible_changes_are_errors():
    algo = ppo().build_algo()
    spec = RLModuleSpec.from_module(algo.get_module("main"))
    with pytest.raises(ValueError, match="'main' exists already"):
        algo.add_module("main", spec)
    with pytest.raises(KeyError, match="Did you mean 'other'"):
        algo.remove_module("othr")
    algo.stop()
    single = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=0).build_algo()
    with pytest.raises(ValueError, match="acts with one module"):
        single.add_module("more", spec)
    single.stop()


@pytest.mark.parametrize("into", ["a new algorithm", "the algorithm as it was built"])
def test_a_restored_algorithm_continues_with_the_added_module(tmp_path, into):
    algo = ppo().build_algo()
    algo.train()
    add_copy(algo, new_should_module_be_updated=["main", "copy"])
    until(algo, "copy")
    path = algo.save_to_path(tmp_path)
    if into == "a new algorithm":
        restored = Algorithm.from_checkpoint(path)
    else:
        restored = ppo().build_algo()
        restored.restore_from_path(path)
    until(algo, "copy")
    until(restored, "copy")
    for module_id in ("main", "other", "copy"):
        assert np.array_equal(weights(algo, module_id), weights(restored, module_id))
    restored.remove_module("copy", new_agent_to_module_mapping_fn=lambda *_, **__: "main")
    algo.stop()
    restored.stop()


@pytest.mark.processes
def test_a_runner_that_dies_has_the_added_modules_again():
    found = []
    for kill in (False, True):
        algo = ppo(num_env_runners=1).build_algo()
        algo.train()
        add_copy(algo, new_should_module_be_updated=["main", "copy"])
        until(algo, "copy")
        if kill:
            (pid,) = algo.env_runner_group.foreach_env_runner(lambda _: os.getpid())
            os.kill(pid, signal.SIGKILL)
        algo.train()
        assert algo.env_runner_group.num_remote_worker_restarts == kill
        found.append(weights(algo, "copy"))
        algo.stop()
    assert np.array_equal(*found)
    api.shutdown()


@pytest.mark.processes
def test_several_learners_add_the_same_module():
    algo = ppo().learners(num_learners=2).build_algo()
    add_copy(algo, new_should_module_be_updated=["main", "copy"])
    before = weights(algo, "copy")
    until(algo, "copy")
    one, other = algo.learner_group.foreach_learner(lambda each: each.get_weights()["copy"])
    for a, b in zip(leaves(one), leaves(other), strict=True):
        assert np.array_equal(a, b)
    assert not np.array_equal(weights(algo, "copy"), before)
    algo.stop()
    api.shutdown()
