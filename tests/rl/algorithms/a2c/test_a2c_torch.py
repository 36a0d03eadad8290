"""A2C: its gradient, microbatches, options, and that it learns."""

import numpy as np
import pytest

from syncline.rl.algorithms.a2c import A2CConfig
from syncline.rl.columns.trees import leaves


def small_config(**training):
    return (
        A2CConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=4)
        .training(train_batch_size_per_learner=64, lr=0.01, **training)
        .rl_module(model_config={"fcnet_hiddens": [8], "fcnet_activation": "tanh"})
        .reporting(min_time_s_per_iteration=0)
        .debugging(seed=3)
    )


def trained(config, iterations=3):
    algo = config.build_algo()
    results = [algo.train() for _ in range(iterations)]
    weights = [np.asarray(leaf) for leaf in leaves(algo.get_weights())]
    algo.stop()
    return weights, results[-1]


def test_one_iteration_is_one_step_on_exactly_the_sampled_batch():
    _, result = trained(small_config(), iterations=1)
    learner = result["learners"]["default_policy"]
    assert result["num_env_steps_sampled_lifetime"] == 64
    assert learner["num_module_steps_trained"] == 64
    assert {"policy_loss", "vf_loss", "entropy", "curr_entropy_coeff"} <= set(learner)


@pytest.mark.parametrize("model", [{}, {"use_lstm": True, "max_seq_len": 5, "lstm_cell_size": 4}])
def test_gradients_of_microbatches_add_up_to_that_of_the_batch(model):
    whole = small_config()
    pieces = small_config(microbatch_size=20)
    for config in (whole, pieces):
        config.rl_module(model_config={"fcnet_hiddens": [8], **model})
    for one, other in zip(trained(whole)[0], trained(pieces)[0], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)


def test_without_critic_advantages_are_returns():
    _, result = trained(small_config(use_critic=False))
    assert "vf_loss" not in result["learners"]["default_policy"]


def test_invalid_options_are_named():
    with pytest.raises(ValueError, match=r"lambda_=1\.5"):
        small_config(lambda_=1.5).validate()
    with pytest.raises(ValueError, match="microbatch_size=0"):
        small_config(microbatch_size=0).validate()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a2c_learns_cart_pole():
    config = (
        A2CConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .training(lr=0.001, train_batch_size_per_learner=256, entropy_coeff=0.0, lambda_=0.95)
        .training(grad_clip=0.5)
        .rl_module(model_config={"fcnet_hiddens": [64, 64], "vf_share_layers": False})
        .reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=5000)
        .debugging(seed=0)
    )
    algo = config.build_algo()
    best = 0.0
    for _ in range(200):
        best = max(best, algo.train()["env_runners"]["episode_return_mean"])
        if best >= 450:
            break
    algo.stop()
    assert best >= 450
