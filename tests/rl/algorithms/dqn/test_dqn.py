"""DQN: every flag changes what its paper says; the rhythm of updates; what is learned."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from syncline.rl.algorithms.dqn import DQNConfig
from syncline.rl.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner, project
from syncline.rl.algorithms.dqn.torch.dqn_torch_module import NoisyLinear
from syncline.rl.buffers.replay_columns import INDICES, N_STEP
from syncline.rl.columns.names import Columns
from syncline.rl.modules.default_model_config import DefaultModelConfig
from tests.rl.algorithms.learners import assert_same_training, batch_of, learner_of, trained

OBS = gym.spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = gym.spaces.Discrete(4)


def config(**options):
    return (
        DQNConfig()
        .environment("CartPole-v1")
        .training(**options)
        .rl_module(model_config={"fcnet_hiddens": [8], "head_fcnet_hiddens": [6]})
        .debugging(seed=1)
    )


def built(**options):
    """Return learner, module and batch; the target network differs from the other."""
    learner = learner_of(config(**options), OBS, ACTIONS)
    module = learner.module["default_policy"]
    with torch.no_grad():
        for each in module.target.parameters():
            each += 0.2 * torch.randn(each.shape, generator=torch.Generator().manual_seed(2))
    return learner, module, batch_of(OBS, ACTIONS, rows=7, n_step=2)


def loss_and_errors(learner, module, batch):
    loss = learner.compute_loss_for_module(
        module_id="default_policy",
        config=learner.config,
        batch=batch,
        fwd_out=module.forward_train(batch),
    )
    return loss.item(), learner.errors["default_policy"].numpy()


@pytest.mark.parametrize("double_q", [True, False])
def test_errors_are_those_of_a_loop(double_q):
    learner, module, batch = built(double_q=double_q, gamma=0.9, td_error_loss_fn="mse")
    loss, errors = loss_and_errors(learner, module, batch)
    total = 0.0
    for row in range(7):
        now, after = ({Columns.OBS: batch[name][row][None]} for name in ("obs", "new_obs"))
        action = batch[Columns.ACTIONS][row]
        target_values = module.forward_target(after)["qf_preds"][0]
        chooser = module.compute_q_values(after)["qf_preds"][0] if double_q else target_values
        future = 0.0 if batch[Columns.TERMINATEDS][row] else 0.81 * target_values[chooser.argmax()]
        error = module.compute_q_values(now)["qf_preds"][0, action] - (
            batch[Columns.REWARDS][row] + future
        )
        assert errors[row] == pytest.approx(error.item(), abs=1e-5)
        total += error.item() ** 2 / 7
    assert loss == pytest.approx(total, rel=1e-4)


def test_double_q_changes_the_targets():
    errors = []
    for double_q in (True, False):
        learner, module, batch = built(double_q=double_q)
        errors.append(loss_and_errors(learner, module, batch)[1])
    assert (errors[0] != errors[1]).any()
    assert (errors[0] >= errors[1] - 1e-6).all()  # the maximum is the largest target


def test_weights_of_the_buffer_scale_the_loss_of_each_row():
    learner, module, batch = built(td_error_loss_fn="mse")
    batch["weights"] = torch.linspace(0.1, 1.0, 7)
    loss, errors = loss_and_errors(learner, module, batch)
    assert loss == pytest.approx(float((batch["weights"].numpy() * errors**2).mean()), rel=1e-4)


def test_dueling_values_are_value_plus_centred_advantages():
    _, module, batch = built(dueling=True)
    online = module.online
    latent = online.encoder(batch)["encoder_out"]
    advantages, value = online.advantages(latent), online.values(latent)
    expected = value + advantages - advantages.mean(-1, keepdim=True)
    torch.testing.assert_close(module.compute_q_values(batch)["qf_preds"], expected)
    assert built(dueling=False)[1].online.values is None


@pytest.mark.parametrize(
    "options",
    [
        {"double_q": True, "dueling": True},
        {"double_q": False, "dueling": False},
        {"double_q": True, "dueling": False, "td_error_loss_fn": "mse", "grad_clip": 0.5},
        {"double_q": False, "dueling": True, "grad_clip": 0.01, "grad_clip_by": "value"},
    ],
)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_updates_without_autograd_are_those_with_it(options, activation):
    def made():
        lr = [[0, 0.01], [1000, 0.001]]
        changed = config(**options, lr=lr, target_network_update_freq=500)
        return changed.rl_module(
            model_config={"fcnet_hiddens": [8, 7], "fcnet_activation": activation}
        )

    assert_same_training(made, OBS, ACTIONS, weights=True)


class HalvedGradients(DQNTorchLearner):
    def postprocess_gradients(self, gradients_dict):
        return {key: 0.5 * value for key, value in gradients_dict.items()}


@pytest.mark.parametrize(
    "changed",
    [
        lambda: config().learners().training(learner_class=HalvedGradients),
        lambda: config(num_atoms=11),
        lambda: config(noisy=True),
        lambda: config(grad_clip=1.0, grad_clip_by="norm"),
        lambda: config().framework(torch_autocast="bfloat16"),
        lambda: config().rl_module(model_config={"fcnet_hiddens": [8], "fcnet_activation": "silu"}),
    ],
)
def test_everything_unusual_uses_autograd(changed):
    assert not trained(changed(), OBS, ACTIONS, autograd=False, updates=1)[0].was_direct


def test_a_hook_on_a_layer_uses_autograd_from_the_next_iteration_on():
    learner, _, _ = trained(config(), OBS, ACTIONS, autograd=False)
    calls = []
    layer = learner.module["default_policy"].online.encoder.net.mlp[0]
    layer.register_forward_hook(lambda *args: calls.append(len(args)))
    rows = batch_of(OBS, ACTIONS, rows=5, arrays=True)
    rows["discounts"] = np.full(5, 0.9, np.float32)
    learner.update_on_rows({"default_policy": rows}, timesteps={})
    assert calls


def naive_projection(probabilities, reward, discount, v_min, v_max):
    """Algorithm 1 of Bellemare et al. 2017, atom by atom."""
    count = len(probabilities)
    width = (v_max - v_min) / (count - 1)
    made = np.zeros(count)
    for j, probability in enumerate(probabilities):
        place = (min(max(reward + discount * (v_min + j * width), v_min), v_max) - v_min) / width
        lower, upper = int(np.floor(place + 1e-9)), int(np.ceil(place - 1e-9))
        if lower == upper:
            made[lower] += probability
        else:
            made[lower] += probability * (upper - place)
            made[upper] += probability * (place - lower)
    return made


def test_projection_is_that_of_a_loop():
    random = np.random.default_rng(0)
    probabilities = random.dirichlet(np.ones(11), size=60).astype(np.float32)
    rewards = random.normal(scale=6.0, size=60).astype(np.float32)
    rewards[:3] = (0.0, 2.0, -50.0)  # exactly on atoms, and beyond the smallest
    discounts = np.where(random.random(60) < 0.3, 0.0, 0.9).astype(np.float32)
    found = project(*map(torch.from_numpy, (probabilities, rewards, discounts)), -5.0, 5.0)
    for row in range(60):
        expected = naive_projection(probabilities[row], rewards[row], discounts[row], -5.0, 5.0)
        np.testing.assert_allclose(found[row].numpy(), expected, atol=1e-5)


def test_distributional_loss_is_the_cross_entropy_to_the_projection():
    learner, module, batch = built(num_atoms=11, v_min=-5.0, v_max=5.0, gamma=0.9)
    _, losses = loss_and_errors(learner, module, batch)
    for row in range(7):
        now, after = ({Columns.OBS: batch[name][row][None]} for name in ("obs", "new_obs"))
        best = module.compute_q_values(after)["qf_preds"][0].argmax()
        following = module.forward_target(after)["qf_probs"][0, best].detach().numpy()
        discount = 0.0 if batch[Columns.TERMINATEDS][row] else 0.81
        target = naive_projection(following, batch[Columns.REWARDS][row].item(), discount, -5, 5)
        logits = module.compute_q_values(now)["qf_logits"][0, batch[Columns.ACTIONS][row]]
        logp = torch.log_softmax(logits, -1).detach().numpy()
        assert losses[row] == pytest.approx(-(target * logp).sum(), rel=1e-4)
    values = module.compute_q_values(batch)
    atoms = torch.linspace(-5, 5, 11)
    torch.testing.assert_close(values["qf_preds"], (values["qf_probs"] * atoms).sum(-1))


def test_noisy_layers_draw_factorized_noise_in_training_only():
    torch.manual_seed(0)
    layer = NoisyLinear(torch.nn.Linear(5, 4), sigma0=0.5)
    assert layer.weight_sigma.detach().numpy() == pytest.approx(0.5 / np.sqrt(5))
    inputs = torch.randn(3, 5)
    one, other = layer(inputs), layer(inputs)
    assert (one != other).all()
    layer.eval()
    plain = torch.nn.functional.linear(inputs, layer.weight, layer.bias)
    torch.testing.assert_close(layer(inputs), plain)
    layer.train()
    weights = []
    for _ in range(2):
        torch.manual_seed(3)
        into, out = (
            noise.sign() * noise.abs().sqrt() for noise in (torch.randn(5), torch.randn(4))
        )
        torch.manual_seed(3)
        weights.append(layer.weight + layer.weight_sigma * torch.outer(out, into))
        expected = inputs @ weights[-1].T + layer.bias + layer.bias_sigma * out
        torch.testing.assert_close(layer(inputs), expected)
    layer(inputs).sum().backward()
    assert layer.weight_sigma.grad.abs().sum() > 0


def test_noisy_networks_explore_without_epsilon_and_repeat_with_the_same_noise():
    module = built(noisy=True)[1]
    acting = module.acting_policy()
    assert acting.epsilon == 0.0
    obs = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)

    def acted(seed, explore=True):
        noise = np.random.default_rng(seed).random((200, acting.noise_size))
        return acting.act(obs, noise, explore=explore)[0][Columns.ACTIONS]

    with torch.no_grad():
        for name, each in module.online.named_parameters():
            if "sigma" in name:
                each *= 10.0
    np.testing.assert_array_equal(acted(1), acted(1))
    assert (acted(1) != acted(2)).any()
    np.testing.assert_array_equal(acted(1, explore=False), acted(2, explore=False))


def test_epsilon_follows_its_schedule():
    acting = built(epsilon=[(0, 1.0), (100, 0.2)])[1].acting_policy()
    obs = np.zeros((20_000, 3), np.float32)
    noise = np.random.default_rng(0).random((20_000, acting.noise_size))
    best = acting.act(obs, noise, explore=False)[0][Columns.ACTIONS][0]
    for step, epsilon in ((0, 1.0), (50, 0.6), (1000, 0.2)):
        acting.set_step(step)
        actions = acting.act(obs, noise, explore=True)[0][Columns.ACTIONS]
        assert (actions != best).mean() == pytest.approx(0.75 * epsilon, abs=0.02)


@pytest.mark.parametrize(
    ("intensity", "fragment", "expected"),
    [(None, 4, (1, 1)), (8, 4, (1, 1)), (16, 4, (1, 2)), (4, 4, (2, 1)), (64, 1, (1, 2))],
)
def test_training_intensity_sets_rounds_and_updates(intensity, fragment, expected):
    made = config(training_intensity=intensity, train_batch_size_per_learner=32)
    made.env_runners(rollout_fragment_length=fragment)
    assert made.rounds() == expected


def run(made, iterations=2):
    algo = (
        made.env_runners(rollout_fragment_length=4)
        .reporting(min_sample_timesteps_per_iteration=40)
        .build_algo()
    )
    for _ in range(iterations):
        result = algo.train()
    return algo, result


def test_updates_follow_training_intensity():
    trained = {}
    for intensity in (8, 16):
        made = config(training_intensity=intensity, num_steps_sampled_before_learning_starts=20)
        algo, result = run(made)
        trained[intensity] = result["learners"]["default_policy"]["num_module_steps_trained"]
        algo.stop()
    assert trained == {8: 10 * 32, 16: 20 * 32}


def test_drawn_lengths_cover_the_range_of_n_step():
    algo, _ = run(config(n_step=(2, 4), num_steps_sampled_before_learning_starts=10_000))
    rows = algo.buffers["default_policy"].sample(200, n_step=(2, 4), gamma=0.9)
    going_on = ~(rows[Columns.TERMINATEDS] | rows[Columns.TRUNCATEDS])
    newest = rows[N_STEP] < 2
    assert set(rows[N_STEP][going_on & ~newest]) == {2, 3, 4}
    algo.stop()


def test_errors_become_priorities():
    algo, _ = run(
        config(
            num_steps_sampled_before_learning_starts=20,
            replay_buffer_config={"type": "PrioritizedEpisodeReplayBuffer", "alpha": 0.5},
        )
    )
    buffer = algo.buffers["default_policy"]
    drawn = {}
    sample = buffer.sample

    def remembered(*args, **kwargs):
        drawn.update(sample(*args, **kwargs))
        return drawn

    buffer.sample = remembered
    learner = algo.learner_group._learner
    algo.learn_from_replay()
    errors = learner.errors["default_policy"].numpy()
    last = dict(zip(drawn[INDICES], errors, strict=True))
    for row, error in last.items():
        priority = buffer._priorities.get(np.array([row]))[0]
        assert priority == pytest.approx((abs(error) + 1e-6) ** 0.5, rel=1e-4)
    algo.stop()


def test_bad_options_are_named():
    with pytest.raises(ValueError, match="`td_error_loss_fn='hubber'` is unknown.*'huber'"):
        config(td_error_loss_fn="hubber").validate()
    with pytest.raises(ValueError, match="`n_step=.3, 2.`"):
        config(n_step=(3, 2)).validate()
    with pytest.raises(ValueError, match="DQN needs a Discrete action space"):
        learner_of(config(), OBS, gym.spaces.Box(-1, 1, (2,)))


@pytest.mark.long
@pytest.mark.parametrize("flags", ["plain", "rainbow"])
def test_dqn_learns_cart_pole(flags):
    rainbow = {"noisy": True, "num_atoms": 51, "v_min": 0.0, "v_max": 100.0}
    algo = (
        DQNConfig()
        .environment("CartPole-v1")
        .env_runners(rollout_fragment_length=4)
        .training(
            lr=1e-3,
            train_batch_size_per_learner=64,
            n_step=3,
            target_network_update_freq=400,
            num_steps_sampled_before_learning_starts=1000,
            epsilon=[(0, 1.0), (8000, 0.02)],
            training_intensity=16,
            replay_buffer_config={"capacity": 30_000},
            **(rainbow if flags == "rainbow" else {}),
        )
        .rl_module(
            model_config=DefaultModelConfig(
                fcnet_hiddens=[64], fcnet_activation="relu", head_fcnet_hiddens=[64]
            )
        )
        .reporting(min_sample_timesteps_per_iteration=1000)
        .evaluation(evaluation_duration=10, evaluation_config={"explore": False})
        .debugging(seed=1)
        .build_algo()
    )
    best = 0.0
    for iteration in range(60):
        algo.train()
        if iteration >= 8:
            best = max(best, algo.evaluate()["env_runners"]["episode_return_mean"])
        if best >= 475:
            break
    algo.stop()
    assert best >= 475
