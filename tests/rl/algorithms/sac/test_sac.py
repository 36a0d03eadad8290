"""SAC: its losses against naive loops for both kinds of actions, temperature; what is learned."""

import math

import gymnasium as gym
import numpy as np
import pytest
import torch

from syncline.rl.algorithms.sac import SACConfig
from syncline.rl.algorithms.sac.torch.sac_torch_learner import SACTorchLearner
from syncline.rl.columns.names import Columns
from syncline.rl.modules.default_model_config import DefaultModelConfig
from syncline.rl.modules.torch.torch_acting import TorchActing
from tests.rl.algorithms.learners import assert_same_training, batch_of, learner_of, trained

OBS = gym.spaces.Box(-1, 1, (3,), np.float32)
BOX = gym.spaces.Box(-2, 2, (2,), np.float32)
DISCRETE = gym.spaces.Discrete(4)


def config(env="Pendulum-v1", **options):
    return (
        SACConfig()
        .environment(env)
        .training(**options)
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .debugging(seed=1)
    )


def built(space, **options):
    learner = learner_of(config(**options), OBS, space)
    module = learner.module["default_policy"]
    with torch.no_grad():
        for each in module.targets.parameters():
            each += 0.1
    return learner, module, batch_of(OBS, space, rows=6, n_step=2)


def loss_of(learner, batch):
    return learner.compute_loss_for_module(
        module_id="default_policy", config=learner.config, batch=batch, fwd_out={}
    ).item()


def test_continuous_losses_are_those_of_a_loop():
    learner, module, batch = built(BOX, gamma=0.9, initial_alpha=0.5)
    torch.manual_seed(5)
    loss = loss_of(learner, batch)
    torch.manual_seed(5)
    next_actions, next_logp = module.policy({"obs": batch[Columns.NEXT_OBS]}).sample_and_logp()
    actions, logp = module.policy(batch).rsample_and_logp()

    def values(critics, obs, action):
        pair = torch.cat([obs, action])[None]
        return [each.layers(pair).item() for each in critics.each]

    critic = policy = entropy = 0.0
    for row in range(6):
        soft = min(values(module.targets, batch["new_obs"][row], next_actions[row]))
        soft -= 0.5 * next_logp[row].item()
        discount = 0.0 if batch[Columns.TERMINATEDS][row] else 0.81
        target = batch[Columns.REWARDS][row].item() + discount * soft
        for value in values(module.critics, batch["obs"][row], batch[Columns.ACTIONS][row]):
            critic += 0.5 * (value - target) ** 2 / 6
        policy += 0.5 * logp[row].item() / 6
        policy -= min(values(module.critics, batch["obs"][row], actions[row])) / 6
        entropy -= logp[row].item() / 6
    alpha = math.log(0.5) * (entropy + 2.0)  # the target is minus the number of dimensions
    assert loss == pytest.approx(critic + policy + alpha, rel=1e-4)


@pytest.mark.parametrize("options", [{"grad_clip": 0.1}, {"twin_q": False}, {"target_entropy": 3}])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_updates_without_autograd_are_those_with_it(options, activation):
    def made():
        changed = config(tau=0.3, initial_alpha=0.5, critic_lr=0.01, **options)
        return changed.rl_module(
            model_config={"fcnet_hiddens": [8, 7], "fcnet_activation": activation}
        )

    assert_same_training(made, OBS, BOX, weights=True)


class OtherPolicyLoss(SACTorchLearner):
    def _policy_loss(self, module, config, batch, alpha):
        loss, entropy = super()._policy_loss(module, config, batch, alpha)
        return 2.0 * loss, entropy


@pytest.mark.parametrize(
    ("changed", "space"),
    [
        (lambda: config().training(learner_class=OtherPolicyLoss), BOX),
        (lambda: config(grad_clip=1.0, grad_clip_by="norm"), BOX),
        (lambda: config(), DISCRETE),
    ],
)
def test_everything_unusual_uses_autograd(changed, space):
    assert not trained(changed(), OBS, space, autograd=False, updates=1)[0].was_direct


def test_discrete_losses_are_those_of_a_loop():
    learner, module, batch = built(DISCRETE, gamma=0.9, initial_alpha=0.5)
    loss = loss_of(learner, batch)
    critic = policy = entropy = 0.0
    for row in range(6):
        now, after = ({"obs": batch[name][row][None]} for name in ("obs", "new_obs"))
        next_p = torch.softmax(module.policy_inputs(after)[0], -1)
        next_q = torch.stack([each(after)[0] for each in module.targets.each]).amin(0)
        soft = sum(next_p[a] * (next_q[a] - 0.5 * next_p[a].log()) for a in range(4)).item()
        discount = 0.0 if batch[Columns.TERMINATEDS][row] else 0.81
        target = batch[Columns.REWARDS][row].item() + discount * soft
        q = torch.stack([each(now)[0] for each in module.critics.each])
        for value in q[:, batch[Columns.ACTIONS][row]]:
            critic += 0.5 * (value.item() - target) ** 2 / 6
        p = torch.softmax(module.policy_inputs(now)[0], -1)
        policy += sum(p[a] * (0.5 * p[a].log() - q.amin(0)[a]) for a in range(4)).item() / 6
        entropy -= sum(p[a] * p[a].log() for a in range(4)).item() / 6
    alpha = math.log(0.5) * (entropy - 0.98 * math.log(4))
    assert loss == pytest.approx(critic + policy + alpha, rel=1e-4)


@pytest.mark.parametrize("space", [BOX, DISCRETE])
def test_each_loss_reaches_its_own_parameters_only(space):
    learner, module, batch = built(space)
    policy = [*module.pi_encoder.parameters(), *module.pi.parameters()]
    critics = list(module.critics.parameters())
    learner.optimizers.zero_gradients(["default_policy"])
    losses = learner._discrete if module.is_discrete else learner._continuous
    alpha = torch.tensor([0.5])
    critic_loss, policy_loss, *_ = losses(module, learner.config, batch, alpha)
    policy_loss.backward(retain_graph=True)
    assert all(each.grad.abs().sum() > 0 for each in policy)
    assert not any(each.grad.abs().sum() for each in critics)
    before = [each.grad.clone() for each in policy]
    critic_loss.backward()
    assert all(each.grad.abs().sum() > 0 for each in critics)
    for one, other in zip(before, policy, strict=True):
        torch.testing.assert_close(one, other.grad)


def test_temperature_falls_while_the_entropy_is_above_its_target():
    for target, sign in ((-100.0, -1), (100.0, 1)):
        learner, _, _ = built(BOX, target_entropy=target, alpha_lr=0.01)
        rows = batch_of(OBS, BOX, rows=16, arrays=True)
        for _ in range(3):
            learner.update_on_rows({"default_policy": rows}, timesteps={})
        assert sign * learner.log_alphas["default_policy"].item() > 0


def test_acting_with_numpy_is_that_of_torch():
    module = built(BOX)[1]
    acting, other = module.acting_policy(), TorchActing(module)
    assert type(acting).__name__ == "SquashedActing"
    random = np.random.default_rng(0)
    obs = random.normal(size=(20, 3)).astype(np.float32)
    noise = random.normal(size=(20, other.noise_size))
    for explore in (True, False):
        one = acting.act(obs, noise[:, :2], explore)[0][Columns.ACTIONS]
        two = other.act(obs, noise, explore)[0][Columns.ACTIONS]
        np.testing.assert_allclose(one, two, atol=1e-5)


def test_default_critics_have_hidden_layers():
    module = learner_of(SACConfig().environment("Pendulum-v1"), OBS, BOX).module["default_policy"]
    assert (256, 256) in [tuple(each.shape) for each in module.critics.parameters()]


def test_bad_options_are_named():
    with pytest.raises(ValueError, match=r"`lr=0.1` has no effect: SAC has"):
        config(lr=0.1).validate()
    with pytest.raises(ValueError, match=r"`initial_alpha=0` must be positive"):
        config(initial_alpha=0).validate()
    with pytest.raises(ValueError, match="SAC needs a Box or Discrete action space"):
        learner_of(config(), OBS, gym.spaces.MultiBinary(3))


def learned(made, threshold, iterations):
    algo = (
        made.rl_module(
            model_config=DefaultModelConfig(fcnet_hiddens=[64, 64], fcnet_activation="relu")
        )
        .reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=1000)
        .evaluation(evaluation_duration=10, evaluation_config={"explore": False})
        .debugging(seed=1)
        .build_algo()
    )
    best = -np.inf
    for iteration in range(iterations):
        algo.train()
        if iteration >= 3:
            best = max(best, algo.evaluate()["env_runners"]["episode_return_mean"])
        if best >= threshold:
            break
    algo.stop()
    return best


RATES = {"actor_lr": 1e-3, "critic_lr": 1e-3, "alpha_lr": 1e-3}
BUFFER = {"type": "EpisodeReplayBuffer", "capacity": 50_000}


@pytest.mark.long
def test_sac_swings_the_pendulum_up():
    made = config(
        **RATES,
        gamma=0.98,
        train_batch_size_per_learner=128,
        num_steps_sampled_before_learning_starts=500,
        replay_buffer_config=BUFFER,
    )
    assert learned(made, -250, 15) >= -250


@pytest.mark.long
def test_sac_with_discrete_actions_learns_cart_pole():
    made = config(
        "CartPole-v1",
        **RATES,
        target_entropy=0.2,
        tau=0.02,
        train_batch_size_per_learner=64,
        num_steps_sampled_before_learning_starts=500,
        replay_buffer_config=BUFFER,
    )
    assert learned(made, 300, 25) >= 300
