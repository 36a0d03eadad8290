"""Algorithms as trials: by name or class, from dictionaries, with population based training."""

import pytest

import syncline
from syncline import tune
from syncline.rl.algorithms.alpha_zero import AlphaZeroConfig
from syncline.rl.algorithms.ars import ARSConfig
from syncline.rl.algorithms.es import ESConfig
from syncline.rl.algorithms.mappo import MAPPOConfig
from syncline.rl.algorithms.ppo import PPOConfig
from syncline.rl.algorithms.qmix import QMixConfig
from syncline.rl.envs.examples.games import TwoStepGameWithGroupedAgents
from syncline.tune.schedulers import PopulationBasedTraining

SMALL = {"fcnet_hiddens": [8]}


@pytest.mark.parametrize(
    ("config", "runners", "evaluation"),
    [
        (ESConfig(), 10, 0),
        (ARSConfig().env_runners(num_env_runners=3), 3, 0),
        (QMixConfig().evaluation(evaluation_num_env_runners=2), 0, 2),
        (MAPPOConfig(), 2, 0),
        (AlphaZeroConfig().env_runners(num_env_runners=4, num_cpus_per_env_runner=0.5), 4, 0),
    ],
)
def test_resources_are_those_of_the_process_and_all_runners(config, runners, evaluation):
    request = config.algo_class.default_resource_request(config)
    share = config.num_cpus_per_env_runner
    assert request.bundles == [{"CPU": 1}] + [{"CPU": share}] * (runners + evaluation)
    assert config.algo_class.default_resource_request(config.to_dict()).bundles == request.bundles


@pytest.fixture(scope="module")
def engine():
    syncline.init(num_cpus=2)
    yield
    syncline.shutdown()


def fit(trainable, space, tmp_path, iterations=2, **settings):
    results = tune.Tuner(
        trainable,
        param_space=space,
        tune_config=tune.TuneConfig(**settings),
        run_config=tune.RunConfig(
            stop={"training_iteration": iterations}, storage_path=str(tmp_path), verbose=0
        ),
    ).fit()
    assert not results.errors
    return results


@pytest.mark.processes
def test_es_runs_as_a_trial_with_runners_of_its_own(engine, tmp_path):
    config = (
        ESConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=1)
        .training(episodes_per_batch=10, train_batch_size=1, noise_size=10_000)
        .training(stepsize=tune.grid_search([0.01, 0.05]))
        .rl_module(model_config=SMALL)
    )
    results = fit("ES", config, tmp_path)
    assert sorted(result.config["stepsize"] for result in results) == [0.01, 0.05]
    for result in results:
        assert result.metrics["env_runners"]["episode_return_mean"] > 5
        assert result.metrics["info"]["episodes_so_far"] >= 20


@pytest.mark.processes
def test_qmix_and_alpha_zero_run_from_dictionaries(engine, tmp_path):
    analysis = tune.run(
        "QMIX",
        config={
            "env": TwoStepGameWithGroupedAgents,
            "mixer": "vdn",
            "num_workers": 0,
            "num_steps_sampled_before_learning_starts": 20,
            "min_sample_timesteps_per_iteration": 100,
            "exploration_config": {"final_epsilon": 0.0, "epsilon_timesteps": 50},
        },
        stop={"training_iteration": 2},
        storage_path=str(tmp_path),
        verbose=0,
    )
    assert analysis.trials[0].last_result["learners"]["default_policy"]["qf_loss"] >= 0
    analysis = tune.run(
        "contrib/AlphaZero",
        config={
            "env": "CartPole-v1",
            "mcts_config": {"num_simulations": 2},
            "rollout_fragment_length": 40,
            "num_steps_sampled_before_learning_starts": 0,
            "train_batch_size": 50,
            "minibatch_size": 50,
            "num_epochs": 1,
        },
        stop={"training_iteration": 1},
        storage_path=str(tmp_path),
        verbose=0,
    )
    assert analysis.trials[0].last_result["env_runners"]["num_episodes"] > 0


@pytest.mark.processes
def test_population_based_training_replaces_the_weights_and_options_of_the_worse_trial(
    engine, tmp_path
):
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=4)
        .training(train_batch_size=512, minibatch_size=128, num_epochs=6)
        .training(lr=tune.grid_search([1e-2, 1e-9]))
        .rl_module(model_config={"fcnet_hiddens": [16], "vf_share_layers": False})
        .debugging(seed=1)
    )
    results = fit(
        "PPO",
        config,
        tmp_path,
        iterations=10,
        metric="env_runners/episode_return_mean",
        mode="max",
        scheduler=PopulationBasedTraining(
            time_attr="training_iteration",
            perturbation_interval=3,
            hyperparam_mutations={"lr": [1e-2, 5e-3]},
            synch=True,
        ),
    )
    assert all(result.config["lr"] in (1e-2, 5e-3) for result in results)  # 1e-9 is gone
    # Without the other one's weights and options, the slow trial would stay at about 16.
    assert all(result.metrics["env_runners"]["episode_return_mean"] > 30 for result in results)
