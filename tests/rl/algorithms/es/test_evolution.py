"""ES and ARS: their parts against naive versions, steps against optimizers, and exact resume."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from syncline.rl.algorithm.algorithm import Algorithm
from syncline.rl.algorithms.ars import ARSConfig
from syncline.rl.algorithms.ars.ars import best_directions
from syncline.rl.algorithms.es import ESConfig
from syncline.rl.algorithms.es.es import centered_ranks
from syncline.rl.algorithms.es.evolution import RunningFilter, noise_table, weighted_noise
from syncline.rl.algorithms.es.population_env_runner import Job, Outcome
from syncline.rl.algorithms.es.torch.evolution_torch_module import EvolutionTorchRLModule
from syncline.rl.algorithms.es.torch.population_torch import NumpyPopulation, TorchPopulation
from syncline.rl.columns.names import Columns
from syncline.rl.modules.torch.catalog import Catalog


def es(env="CartPole-v1", **options):
    return (
        ESConfig()
        .environment(env)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=options.pop("num_envs", 4))
        .training(
            **{
                "episodes_per_batch": 12,
                "train_batch_size": 1,
                "noise_size": 20_000,
                "noise_stdev": 0.05,
                "stepsize": 0.03,
                **options,
            }
        )
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .debugging(seed=3)
    )


def ars(**options):
    return (
        ARSConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=4)
        .training(
            **{
                "num_rollouts": 6,
                "rollouts_used": 4,
                "noise_size": 20_000,
                "noise_stdev": 0.05,
                **options,
            }
        )
        .debugging(seed=3)
    )


def theta(algo):
    return algo.get_module().flat_weights()


# -- parts


def test_centered_ranks_depend_on_the_order_of_returns_only():
    ranks = centered_ranks(np.array([[10.0, -1.0], [1e9, 3.0], [2.0, 4.0]]))
    np.testing.assert_allclose(ranks, [[0.3, -0.5], [0.5, -0.1], [-0.3, 0.1]])


def test_weighted_noise_is_the_weighted_sum_of_slices():
    table = noise_table(1000, seed=1, num_weights=50)
    random = np.random.default_rng(0)
    starts, weights = random.integers(0, 951, 150), random.standard_normal(150)
    naive = sum(
        w * table[start : start + 50].astype(float)
        for w, start in zip(weights, starts, strict=True)
    )
    np.testing.assert_allclose(weighted_noise(table, starts, weights, 50), naive, atol=1e-4)


def test_noise_is_standard_normal_and_depends_on_the_seed():
    table = noise_table(100_000, seed=1, num_weights=10)
    assert abs(table.mean()) < 0.02
    assert abs(table.std() - 1) < 0.02
    assert (table == noise_table(100_000, 1, 10)).all()
    assert (table != noise_table(100_000, 2, 10)).any()
    with pytest.raises(ValueError, match=r"`noise_size=5`.*10 weights.*100 or more"):
        noise_table(5, seed=1, num_weights=10)


def test_best_directions_are_those_with_the_best_of_both_episodes():
    returns = np.array([[1.0, 2.0], [9.0, -9.0], [3.0, 3.0], [0.0, 4.0]])
    assert best_directions(returns, 3).tolist() == [1, 3, 2]


def test_filter_standardizes_by_all_observations_so_far():
    random = np.random.default_rng(0)
    episodes = [random.normal(5.0, [1.0, 3.0, 0.0], (n, 3)) for n in (4, 30)]
    found = RunningFilter(3)
    for each in episodes:
        found.add(
            Outcome(
                job=Job(number=0, noise_index=0, sign=1, seed=0),
                episode_return=0.0,
                length=len(each),
                duration_s=0.0,
                obs_sum=each.sum(0),
                obs_squares=(each**2).sum(0),
            )
        )
    mean, scale = found.mean_and_scale()
    together = np.concatenate(episodes)
    np.testing.assert_allclose(mean, together.mean(0), rtol=1e-5)
    np.testing.assert_allclose(scale[:2], 1 / together.std(0)[:2], rtol=1e-4)
    assert scale[2] == 0.0  # never varied


@pytest.mark.parametrize("hiddens", [[], [8, 6]])
@pytest.mark.parametrize(
    "action_space",
    [gym.spaces.Discrete(3), gym.spaces.Box(-1, 1, (2, 2)), gym.spaces.MultiDiscrete([2, 3])],
)
def test_policies_side_by_side_act_as_each_would_alone(hiddens, action_space):
    module = EvolutionTorchRLModule(
        observation_space=gym.spaces.Box(-9, 9, (5,)),
        action_space=action_space,
        model_config={"fcnet_hiddens": hiddens},
        catalog_class=Catalog,
    )
    module.set_filter(np.full(5, 0.5, np.float32), np.full(5, 2.0, np.float32))
    random = np.random.default_rng(0)
    thetas = random.standard_normal((3, len(module.flat_weights()))).astype(np.float32)
    obs = random.standard_normal((3, 5)).astype(np.float32)
    alone = []
    for weights, each in zip(thetas, obs, strict=True):
        torch.nn.utils.vector_to_parameters(torch.from_numpy(weights), module.parameters())
        alone.append(module.policy_outputs(torch.from_numpy(each)[None])[0].detach().numpy())
    population = module.population(thetas.copy())
    assert isinstance(population, NumpyPopulation)
    np.testing.assert_allclose(population.outputs(obs), alone, rtol=1e-5, atol=1e-5)
    with_torch = TorchPopulation(module, thetas.copy())
    np.testing.assert_allclose(with_torch.outputs(obs), alone, rtol=1e-5, atol=1e-5)
    for each in (population, with_torch):
        each.keep([2, 0])
        each.set(1, thetas[1])
        np.testing.assert_allclose(
            each.outputs(obs[[2, 1]]), np.array(alone)[[2, 1]], rtol=1e-5, atol=1e-5
        )
    acted = module.forward_inference({Columns.OBS: torch.from_numpy(obs)})[Columns.ACTIONS]
    assert all(
        action_space.contains(each)
        for each in module.actions_of(np.tanh(alone)).astype(action_space.dtype)
    )
    assert acted.shape[1:] == action_space.shape


def test_nested_observations_take_the_path_of_torch():
    space = gym.spaces.Dict({"a": gym.spaces.Discrete(3), "b": gym.spaces.Box(0, 1, (2,))})
    module = EvolutionTorchRLModule(
        observation_space=space,
        action_space=gym.spaces.Discrete(2),
        model_config={"fcnet_hiddens": [4]},
        catalog_class=Catalog,
    )
    thetas = np.stack([module.flat_weights()] * 2)
    population = module.population(thetas)
    assert isinstance(population, TorchPopulation)
    obs = {"a": np.array([0, 2]), "b": np.ones((2, 2), np.float32)}
    together = module.policy_outputs({k: torch.from_numpy(v) for k, v in obs.items()})
    np.testing.assert_allclose(population.outputs(obs), together.detach().numpy(), rtol=1e-5)


# -- the algorithms


def test_table_is_no_larger_than_the_policy_needs():
    for noise_size, expected in ((250_000_000, 1_000_000), (30_000, 30_000)):
        algo = ars(noise_size=noise_size).build_algo()
        assert len(algo.noise) == expected
        algo.stop()


def test_continuous_actions_get_noise_in_perturbed_episodes_only():
    returns = {}
    for deviation in (0.0, 0.5):
        config = es("Pendulum-v1", action_noise_std=deviation, episodes_per_batch=2)
        algo = config.build_algo()
        pair = algo.run_pairs(1)[0]
        found = algo.metrics.peek(("env_runners", "episode_return_mean"))
        returns[deviation] = (pair[0].episode_return, found)
        algo.stop()
    assert returns[0.0][0] != returns[0.5][0]
    assert returns[0.0][1] == returns[0.5][1]


def test_step_of_es_is_a_step_of_adam_along_the_ranked_noise():
    algo = es().build_algo()
    before = theta(algo)
    pairs = []
    run_pairs = algo.run_pairs
    algo.run_pairs = lambda n: pairs.extend(run_pairs(n)) or list(pairs)
    algo.training_step()
    ranks = centered_ranks(np.array([[p.episode_return, n.episode_return] for p, n in pairs]))
    gradient = np.zeros(len(before))
    for (positive, negative), (up, down) in zip(pairs, ranks, strict=True):
        assert positive.job.noise_index == negative.job.noise_index
        assert positive.job.seed == negative.job.seed
        noise = algo.noise[positive.job.noise_index :][: len(before)]
        gradient += (up - down) * noise / (2 * len(pairs))
    parameter = torch.nn.Parameter(torch.from_numpy(before.copy()))
    parameter.grad = torch.from_numpy((-gradient + 0.005 * before).astype(np.float32))
    torch.optim.Adam([parameter], lr=0.03).step()
    np.testing.assert_allclose(theta(algo), parameter.detach().numpy(), rtol=1e-4, atol=1e-6)
    algo.stop()


def test_step_of_ars_uses_the_best_directions_and_the_deviation_of_their_returns():
    algo = ars(sgd_stepsize=0.5, offset=0.25).build_algo()
    before = theta(algo)
    kept = []
    run_pairs = algo.run_pairs
    algo.run_pairs = lambda n: kept.extend(run_pairs(n)) or list(kept)
    algo.training_step()
    pairs = [
        (p.episode_return - 0.25 * p.length, n.episode_return - 0.25 * n.length, p.job.noise_index)
        for p, n in kept
    ]
    used = sorted(pairs, key=lambda pair: -max(pair[:2]))[:4]
    deviation = np.std([value for pair in used for value in pair[:2]])
    step = sum((up - down) * algo.noise[start:][: len(before)] for up, down, start in used)
    np.testing.assert_allclose(
        theta(algo), before + 0.5 / (4 * deviation) * step, rtol=1e-3, atol=1e-5
    )
    algo.stop()


def test_perturbed_episodes_are_played_with_the_perturbed_weights():
    class Still(gym.Env):
        """Rewards the difference of the two weights' outputs for a constant observation."""

        observation_space = gym.spaces.Box(-9, 9, (1,))
        action_space = gym.spaces.Box(-99, 99, (1,))

        def reset(self, *, seed=None, options=None):
            return np.ones(1, np.float32), {}

        def step(self, action):
            return np.ones(1, np.float32), float(action[0]), True, False, {}

    config = es(lambda _: Still(), action_noise_std=0.0).environment(normalize_actions=False)
    algo = config.rl_module(model_config={"fcnet_hiddens": []}).build_algo()
    weight, bias = theta(algo)
    for pair in algo.run_pairs(5):
        for each in pair:
            noise = algo.noise[each.job.noise_index :][:2]
            expected = (weight + each.job.sign * 0.05 * noise[0]) + (
                bias + each.job.sign * 0.05 * noise[1]
            )
            assert each.episode_return == pytest.approx(expected, rel=1e-4)
    algo.stop()


def test_episodes_run_until_the_batch_has_its_steps():
    algo = es(train_batch_size=2000).build_algo()
    result = algo.train()
    assert result["info"]["timesteps_this_iter"] >= 2000
    assert result["info"]["episodes_this_iter"] > 12
    assert result["env_runners"]["num_episodes"] >= 1
    assert result["env_runners"]["episode_return_mean"] > 0
    algo.stop()


@pytest.mark.parametrize("make", [es, ars])
def test_results_do_not_depend_on_the_number_of_environments(make):
    ends = []
    for num_envs in (1, 3, 8):
        config = make().env_runners(num_envs_per_env_runner=num_envs)
        algo = config.build_algo()
        for _ in range(2):
            algo.train()
        ends.append(theta(algo))
        algo.stop()
    np.testing.assert_array_equal(ends[0], ends[1])
    np.testing.assert_array_equal(ends[0], ends[2])


@pytest.mark.parametrize("make", [es, ars])
def test_restored_algorithm_ends_with_the_same_weights(make, tmp_path):
    algo = make().build_algo()
    algo.train()
    path = algo.save_to_path(tmp_path / "checkpoint")
    expected = [algo.train() for _ in range(2)]
    restored = Algorithm.from_checkpoint(path)
    found = [restored.train() for _ in range(2)]
    np.testing.assert_array_equal(theta(restored), theta(algo))
    np.testing.assert_array_equal(
        restored.get_module().filter_scale.numpy(), algo.get_module().filter_scale.numpy()
    )
    for one, other in zip(expected, found, strict=True):
        assert one["info"] == other["info"]
        assert (
            one["env_runners"]["episode_return_mean"] == other["env_runners"]["episode_return_mean"]
        )
    algo.stop()
    restored.stop()


def test_evaluation_uses_weights_and_filter_of_the_policy():
    algo = ars().evaluation(evaluation_duration=3).build_algo()
    algo.train()
    found = algo.evaluate()["env_runners"]
    assert found["num_episodes"] == 3
    assert algo.eval_env_runner.module.filter_scale[0] != 1.0
    assert algo.eval_env_runner._connections is None  # nothing filters twice
    algo.stop()


def test_wrong_options_are_refused():
    with pytest.raises(ValueError, match="'async'` cannot do: use 'sync'"):
        es().env_runners(gym_env_vectorize_mode="async").build_algo()
    with pytest.raises(ValueError, match="without memory"):
        es().rl_module(model_config={"use_lstm": True}).build_algo()
    with pytest.raises(ValueError, match=r"`rollouts_used=9`.*`num_rollouts=6`"):
        ars(rollouts_used=9).build_algo()
    with pytest.raises(ValueError, match="one policy"):
        es().multi_agent(
            policies={"a"}, policy_mapping_fn=lambda agent, episode, **_: "a"
        ).build_algo()
    with pytest.raises(ValueError, match="`num_learners=1`"):
        es().learners(num_learners=1).build_algo()
