"""PPO: its loss against the paper's sum, the adaptive KL coefficient, and that it learns."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from syncline.rl.algorithms.ppo import PPOConfig
from syncline.rl.columns.names import Columns
from syncline.rl.envs.examples.memory import RepeatAfterMeEnv, StatelessCartPole
from syncline.rl.learners.torch.train_batch import TrainBatch
from tests.rl.algorithms.learners import learner_of

OBS = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
ACTIONS = gym.spaces.Discrete(4)
ROWS = 12


def small_config(**training):
    model = {"fcnet_hiddens": [8], "vf_share_layers": False}
    return PPOConfig().training(**training).rl_module(model_config=model).debugging(seed=3)


def batch(seed=0):
    random = np.random.default_rng(seed)
    logits = random.normal(size=(ROWS, 4)).astype(np.float32)
    actions = random.integers(4, size=ROWS)
    return {
        Columns.OBS: torch.from_numpy(random.normal(size=(ROWS, 3)).astype(np.float32)),
        Columns.ACTIONS: torch.from_numpy(actions),
        Columns.ACTION_DIST_INPUTS: torch.from_numpy(logits),
        Columns.ACTION_LOGP: torch.from_numpy(log_softmax(logits)[np.arange(ROWS), actions]),
        Columns.ADVANTAGES: torch.from_numpy(random.normal(size=ROWS).astype(np.float32)),
        Columns.VALUE_TARGETS: torch.from_numpy(3 * random.normal(size=ROWS).astype(np.float32)),
    }


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def test_loss_is_that_of_the_paper_row_by_row():
    config = small_config(
        clip_param=0.2, vf_clip_param=4.0, vf_loss_coeff=0.7, entropy_coeff=0.05, kl_coeff=0.3
    )
    learner = learner_of(config, OBS, ACTIONS)
    learner.before_gradient_based_update(timesteps={})
    rows = batch()
    module = learner.module["default_policy"]
    out = module.forward_train(rows)
    loss = learner.compute_loss_for_module(
        module_id="default_policy", config=config, batch=rows, fwd_out=out
    )
    logits = out[Columns.ACTION_DIST_INPUTS].detach().numpy()
    values = module.compute_values(rows).detach().numpy()
    new, old = log_softmax(logits), log_softmax(rows[Columns.ACTION_DIST_INPUTS].numpy())
    total, clipped = 0.0, 0
    for row in range(ROWS):
        action, advantage = int(rows[Columns.ACTIONS][row]), float(rows[Columns.ADVANTAGES][row])
        ratio = np.exp(new[row, action] - float(rows[Columns.ACTION_LOGP][row]))
        clipped += not 0.8 <= ratio <= 1.2
        gain = min(ratio * advantage, float(np.clip(ratio, 0.8, 1.2)) * advantage)
        error = min((values[row] - float(rows[Columns.VALUE_TARGETS][row])) ** 2, 4.0)
        entropy = -(np.exp(new[row]) * new[row]).sum()
        divergence = (np.exp(old[row]) * (old[row] - new[row])).sum()
        total += -gain + 0.7 * error - 0.05 * entropy + 0.3 * divergence
    assert clipped > 3
    assert loss.item() == pytest.approx(total / ROWS, rel=1e-4)


def test_advantages_are_standardized_over_the_batch():
    learner = learner_of(small_config(), OBS, ACTIONS)
    rows = batch()
    whole = TrainBatch(columns=dict(rows), num_rows=ROWS)
    learner.finish_batch("default_policy", learner.config, whole)
    found = whole.columns[Columns.ADVANTAGES].numpy()
    given = rows[Columns.ADVANTAGES].numpy()
    np.testing.assert_allclose(found, (given - given.mean()) / given.std(), rtol=1e-4)


@pytest.mark.parametrize(("kl", "factor"), [(0.05, 1.5), (0.011, 1.0), (0.004, 0.5)])
def test_kl_coefficient_follows_the_measured_divergence(kl, factor):
    learner = learner_of(small_config(kl_coeff=0.2, kl_target=0.01), OBS, ACTIONS)
    learner.before_gradient_based_update(timesteps={})
    learner.metrics.log_value(("default_policy", "mean_kl_loss"), kl, reduce="mean")
    learner.after_gradient_based_update(timesteps={})
    assert learner.curr_kl_coeffs_per_module["default_policy"] == pytest.approx(0.2 * factor)


def test_invalid_options_are_named():
    for options, text in (({"clip_param": 0.0}, "clip_param"), ({"lambda_": 1.5}, "lambda_=1.5")):
        with pytest.raises(ValueError, match=text):
            small_config(**options).environment("CartPole-v1").validate()


# -- learning


def best_return(config, *, wanted, iterations):
    algo = config.debugging(seed=1).build_algo()
    best = -np.inf
    for _ in range(iterations):
        best = max(best, algo.train()["env_runners"]["episode_return_mean"])
        if best >= wanted:
            break
    algo.stop()
    return best


@pytest.mark.long
@pytest.mark.timeout(300)
def test_cart_pole_stands():
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .training(train_batch_size_per_learner=1024, minibatch_size=256, num_epochs=8, lr=0.001)
        .training(gamma=0.98, lambda_=0.95, clip_param=0.2, use_kl_loss=False, grad_clip=0.5)
        .training(vf_clip_param=1e6, vf_loss_coeff=0.25)
        .rl_module(model_config={"fcnet_hiddens": [64, 64], "vf_share_layers": False})
    )
    assert best_return(config, wanted=475, iterations=250) >= 475


def with_memory(env, env_config, gamma, **model):
    return (
        PPOConfig()
        .environment(env, env_config=env_config)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=16)
        .training(train_batch_size_per_learner=2048, minibatch_size=512, num_epochs=6)
        .training(gamma=gamma, lambda_=0.95, clip_param=0.2, use_kl_loss=False, grad_clip=0.5)
        .training(vf_clip_param=1e4, vf_loss_coeff=0.005, entropy_coeff=0.001, lr=0.001)
        .rl_module(model_config={"fcnet_hiddens": [64], "vf_share_layers": True, **model})
    )


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "model",
    [
        {"use_lstm": True, "lstm_cell_size": 64, "max_seq_len": 16},
        {"use_gru": True, "lstm_cell_size": 64, "max_seq_len": 16},
        {
            "use_attention": True,
            "attention_dim": 32,
            "attention_head_dim": 16,
            "attention_num_heads": 2,
            "attention_memory_inference": 10,
            "attention_memory_training": 10,
            "max_seq_len": 16,
        },
    ],
    ids=["lstm", "gru", "attention"],
)
def test_cart_pole_without_velocities_stands_with_memory(model):
    config = with_memory(StatelessCartPole, {}, 0.98, **model)
    if "use_attention" in model:
        config.training(lr=0.0006)
    assert best_return(config, wanted=400, iterations=300) >= 400


@pytest.mark.long
@pytest.mark.parametrize("use_lstm", [True, False], ids=["lstm", "no memory"])
def test_repeating_what_was_seen_two_steps_ago_needs_memory(use_lstm):
    model = {"use_lstm": True, "lstm_cell_size": 32, "max_seq_len": 16} if use_lstm else {}
    config = with_memory(RepeatAfterMeEnv, {"repeat_delay": 2}, 0.5, **model)
    best = best_return(config, wanted=75, iterations=30)
    assert best >= 75 if use_lstm else best < 30
