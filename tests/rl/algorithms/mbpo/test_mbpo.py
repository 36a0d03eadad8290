"""MBPO as an algorithm: rollouts, batches, exact resume, errors; and that it learns."""

import numpy as np
import pytest

from syncline.rl.algorithm.algorithm import Algorithm
from syncline.rl.algorithms.mbpo import MBPOConfig
from syncline.rl.algorithms.mbpo.transitions import ImaginedTransitions, mixed
from syncline.rl.algorithms.sac import SACConfig
from syncline.rl.columns.trees import leaves
from syncline.rl.envs.examples.image_grid import ImageGrid


def small(env="Pendulum-v1", **training):
    options = {
        "num_steps_sampled_before_learning_starts": 40,
        "train_batch_size_per_learner": 20,
        "real_data_ratio": 0.25,
        "dynamics_model": {
            "ensemble_size": 3,
            "num_elites": 2,
            "fcnet_hiddens": [8],
            "train_epochs": 2,
        },
        "dynamics_train_freq": 20,
        "num_rollouts_per_step": 3,
        "num_updates_per_step": 2,
        "replay_buffer_config": {"capacity": 500},
        **training,
    }
    return (
        MBPOConfig()
        .environment(env)
        .env_runners(num_envs_per_env_runner=2)
        .training(**options)
        .rl_module(model_config={"fcnet_hiddens": [8], "fcnet_activation": "relu"})
        .debugging(seed=3)
        .reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=20)
    )


def imagined(values):
    values = np.asarray(values, np.float32)
    columns = dict.fromkeys(("actions", "rewards", "terminateds", "truncateds"), values)
    return {"obs": values[:, None], "new_obs": values[:, None] + 0.5, **columns}


def test_a_ring_of_imagined_steps_keeps_the_newest():
    ring = ImaginedTransitions(5)
    ring.add(imagined([0, 1, 2]))
    ring.add(imagined([3, 4, 5, 6]))
    random = np.random.default_rng(0)
    drawn = ring.sample(200, random)
    assert set(drawn["rewards"]) == {2, 3, 4, 5, 6}
    np.testing.assert_array_equal(drawn["new_obs"][:, 0], drawn["rewards"] + 0.5)
    ring.resize(3)
    assert set(ring.sample(200, random)["rewards"]) == {4, 5, 6}
    ring.resize(4)
    ring.add(imagined([7, 8]))
    assert set(ring.sample(200, random)["rewards"]) == {5, 6, 7, 8}
    with pytest.raises(ValueError, match="do not fit"):
        ring.add(imagined(range(5)))


def test_batches_have_real_steps_first():
    batch = mixed(imagined([1, 2]), imagined([3]))
    assert batch["rewards"].tolist() == [1, 2, 3]
    assert batch["n_step"].tolist() == [1, 1, 1]


def test_model_is_trained_and_used_as_often_as_configured():
    algo = small(rollout_length=[[0, 1], [80, 3]]).build_algo()
    result = algo.train()
    assert "dynamics" not in result
    results = [algo.train() for _ in range(3)]
    assert [each["dynamics"]["rollout_length"] for each in results] == [2, 2, 3]
    assert results[0]["dynamics"]["num_imagined_steps"] == 3 * 20 * 2
    assert results[-1]["dynamics"]["num_imagined_steps"] == 3 * 20 * 3
    trained = results[-1]["learners"]["default_policy"]["num_module_steps_trained_lifetime"]
    assert trained == (80 - 40 + 2) * 2 * 20  # from the step that reaches 40 on
    algo.stop()


def test_rollouts_follow_the_policy_and_stop_at_terminal_states():
    ends = []

    def termination(obs, actions, new_obs):
        ends.append((obs.copy(), new_obs[:, 0] > 0.0))
        return ends[-1][1]

    algo = small(rollout_length=3, termination_fn=termination).build_algo()
    while not ends:
        algo.train()
    first = ends[:3]
    assert len(first[0][0]) == 60
    for (obs, done), (following, _) in zip(first[:-1], first[1:], strict=True):
        assert len(following) == (~done).sum()
        assert len(obs) > len(following)
    stored = algo.imagined.sample(500, np.random.default_rng(0))
    np.testing.assert_array_equal(stored["terminateds"], stored["new_obs"][:, 0] > 0.0)
    assert np.abs(stored["actions"]).max() <= 1.0
    algo.stop()


@pytest.mark.parametrize("env", ["Pendulum-v1", "CartPole-v1"])
def test_restored_algorithm_ends_with_the_same_weights(env, tmp_path):
    def weights(algo):
        state = [algo.learner_group.get_state(), algo.dynamics.get_state()]
        return [each for each in leaves(state) if isinstance(each, np.ndarray)]

    algo = small(env).build_algo()
    for _ in range(3):
        algo.train()
    path = algo.save_to_path(tmp_path / "checkpoint")
    algo.train()
    algo.train()
    end = weights(algo)
    algo.stop()
    restored = Algorithm.from_checkpoint(path)
    restored.train()
    restored.train()
    for one, other in zip(weights(restored), end, strict=True):
        np.testing.assert_array_equal(one, other)
    restored.stop()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dynamics_model": {"ensembel_size": 3}}, "Did you mean 'ensemble_size'"),
        ({"dynamics_model": {"num_elites": 9}}, "between 1 and"),
        ({"real_data_ratio": 2.0}, "from 0 to 1"),
        ({"num_updates_per_step": 0}, "at least 1"),
        ({"n_step": 3}, "single steps"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        MBPOConfig().environment("Pendulum-v1").training(**options).build_algo()


def test_images_are_refused():
    with pytest.raises(ValueError, match="vector observations"):
        small(ImageGrid).build_algo()


def steps_to(config, goal, *, at_most):
    """Return the steps after which the mean return of 5 episodes reaches `goal`."""
    algo = (
        config.environment("Pendulum-v1")
        .rl_module(model_config={"fcnet_hiddens": [64, 64], "fcnet_activation": "relu"})
        .training(
            actor_lr=1e-3,
            critic_lr=1e-3,
            alpha_lr=1e-3,
            num_steps_sampled_before_learning_starts=400,
            train_batch_size_per_learner=256,
            n_step=1,
            replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 20_000},
        )
        .debugging(seed=1)
        .reporting(
            min_time_s_per_iteration=0,
            min_sample_timesteps_per_iteration=200,
            metrics_num_episodes_for_smoothing=5,
        )
        .build_algo()
    )
    try:
        while True:
            result = algo.train()
            steps = result["num_env_steps_sampled_lifetime"]
            if steps >= 1000 and result["env_runners"]["episode_return_mean"] >= goal:
                return steps
            if steps >= at_most:
                return None
    finally:
        algo.stop()


@pytest.mark.long
def test_swings_up_a_pendulum_with_fewer_real_steps_than_sac():
    config = MBPOConfig().training(
        dynamics_model={"fcnet_hiddens": [64, 64], "ensemble_size": 5, "num_elites": 3},
        dynamics_train_freq=200,
        num_rollouts_per_step=50,
        rollout_length=2,
        num_updates_per_step=10,
    )
    steps = steps_to(config, -250.0, at_most=4000)
    assert steps is not None
    assert steps_to(SACConfig(), -250.0, at_most=steps) is None
