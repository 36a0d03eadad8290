"""Action distributions against torch.distributions, and their samples against their densities."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import distributions as reference

from syncline.rl.algorithms.ppo import PPOConfig
from syncline.rl.modules.distribution import Noise
from syncline.rl.modules.rl_module import RLModuleSpec
from syncline.rl.modules.torch.actor_critic import DefaultPPOTorchRLModule
from syncline.rl.modules.torch.distributions.base import TorchDistribution
from syncline.rl.modules.torch.distributions.categorical import (
    TorchCategorical,
    TorchMultiCategorical,
)
from syncline.rl.modules.torch.distributions.deterministic import TorchDeterministic
from syncline.rl.modules.torch.distributions.gaussian import (
    TorchDiagGaussian,
    TorchSquashedGaussian,
)
from syncline.rl.modules.torch.distributions.mixture import TorchGaussianMixture
from syncline.rl.modules.torch.distributions.multi import TorchMultiDistribution


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def uniform_grid(size):
    """Return numbers that cover [0, 1) evenly, [size, 1]."""
    return ((torch.arange(size, dtype=torch.float64) + 0.5) / size).unsqueeze(-1)


@pytest.mark.parametrize("shape", [(4,), (5, 4), (2, 3, 4)])
def test_categorical_equals_torch(shape):
    logits, other = torch.randn(shape), torch.randn(shape)
    ours, theirs = TorchCategorical(logits), reference.Categorical(logits=logits)
    actions = theirs.sample()
    torch.testing.assert_close(ours.logp(actions), theirs.log_prob(actions))
    torch.testing.assert_close(ours.entropy(), theirs.entropy())
    torch.testing.assert_close(ours.probs, theirs.probs)
    expected = reference.kl_divergence(theirs, reference.Categorical(logits=other))
    torch.testing.assert_close(ours.kl(TorchCategorical(other)), expected)
    torch.testing.assert_close(
        ours.logp(actions.expand(7, *actions.shape)),
        theirs.log_prob(actions).expand(7, *shape[:-1]),
    )


def test_categorical_from_probabilities_and_with_temperature():
    probs = torch.tensor([[0.1, 0.2, 0.7]])
    torch.testing.assert_close(TorchCategorical(probs=probs).probs, probs)
    cold = TorchCategorical(probs.log(), temperature=0.5)
    torch.testing.assert_close(cold.probs, probs**2 / (probs**2).sum())
    with pytest.raises(ValueError, match="exactly one"):
        TorchCategorical(probs, probs=probs)
    with pytest.raises(ValueError, match="temperature=0"):
        TorchCategorical(probs, temperature=0)


def test_categorical_samples_are_the_inverse_of_the_cumulative_probability():
    probs = torch.tensor([0.1, 0.2, 0.7])
    ours = TorchCategorical(probs.log().expand(1000, 3))
    actions, logp = ours.sample_with_noise(uniform_grid(1000))
    assert torch.bincount(actions).tolist() == [100, 200, 700]
    torch.testing.assert_close(logp, probs.log()[actions])
    counts = torch.bincount(ours.sample(sample_shape=(100,)).flatten())
    torch.testing.assert_close(counts / 1e5, probs, atol=0.005, rtol=0.0)


@pytest.mark.parametrize("excluded", [-torch.inf, torch.finfo(torch.float32).min])
def test_excluded_actions_are_never_sampled_and_keep_everything_finite(excluded):
    logits = torch.tensor([[excluded, 0.0, excluded, 0.0, excluded]], requires_grad=True)
    ours = TorchCategorical(logits)
    noise = torch.tensor([0.0, 0.5 - 1e-12, 0.5, 1.0 - 2.0**-53], dtype=torch.float64)
    assert [int(ours._inverse_cdf(each.reshape(1, 1))) for each in noise] == [1, 1, 3, 3]
    torch.testing.assert_close(ours.entropy(), torch.log(torch.tensor([2.0])))
    torch.testing.assert_close(ours.kl(TorchCategorical(logits)), torch.zeros(1))
    (ours.entropy() + ours.logp(torch.tensor([1]))).sum().backward()
    assert torch.isfinite(logits.grad).all()


def test_categorical_reparameterized_samples_carry_the_gradient_of_probabilities():
    logits = torch.randn(6, 3, requires_grad=True)
    sample = TorchCategorical(logits).rsample()
    torch.testing.assert_close(sample.sum(-1), torch.ones(6))
    weights = torch.randn(6, 3)
    (gradient,) = torch.autograd.grad((sample * weights).sum(), logits)
    (expected,) = torch.autograd.grad((torch.softmax(logits, -1) * weights).sum(), logits)
    torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("shape", [(3,), (5, 3), (2, 4, 3)])
def test_gaussian_equals_torch(shape):
    loc, log_std = torch.randn(shape), torch.randn(shape)
    ours = TorchDiagGaussian.from_logits(torch.cat([loc, log_std], -1))
    theirs = reference.Independent(reference.Normal(loc, log_std.exp()), 1)
    actions = theirs.sample()
    torch.testing.assert_close(ours.logp(actions), theirs.log_prob(actions))
    torch.testing.assert_close(ours.entropy(), theirs.entropy())
    others = torch.randn(shape), torch.randn(shape).exp()
    expected = reference.kl_divergence(theirs, reference.Independent(reference.Normal(*others), 1))
    torch.testing.assert_close(ours.kl(TorchDiagGaussian(*others)), expected)


def test_gaussian_samples():
    ours = TorchDiagGaussian(torch.tensor([1.0, -2.0]), torch.tensor([0.5, 3.0]))
    samples = ours.sample(sample_shape=(100_000,))
    torch.testing.assert_close(samples.mean(0), ours.loc, atol=0.05, rtol=0.0)
    torch.testing.assert_close(samples.std(0), ours.scale, atol=0.05, rtol=0.0)
    noise = torch.tensor([0.5, -1.0], dtype=torch.float64)
    actions, logp = ours.sample_with_noise(noise)
    torch.testing.assert_close(actions, torch.tensor([1.25, -5.0]))
    torch.testing.assert_close(logp, ours.logp(actions))


def test_gaussian_without_scale_takes_it_from_the_second_half():
    ours = TorchDiagGaussian(torch.tensor([0.0, 1.0]))
    assert (float(ours.loc), float(ours.log_std)) == (0.0, 1.0)


def test_gaussian_reparameterized_samples_have_gradients():
    loc = torch.zeros(2, requires_grad=True)
    TorchDiagGaussian(loc, torch.ones(2)).rsample().sum().backward()
    assert loc.grad.tolist() == [1.0, 1.0]
    assert not TorchDiagGaussian(loc, torch.ones(2)).sample().requires_grad


def test_gaussian_actions_of_any_rank():
    logits = torch.randn(5, 12)
    flat = TorchDiagGaussian.from_logits(logits)
    shaped = TorchDiagGaussian.from_logits(logits, event_shape=(2, 3))
    actions = shaped.sample()
    assert actions.shape == (5, 2, 3)
    torch.testing.assert_close(shaped.logp(actions), flat.logp(actions.flatten(1)))
    assert shaped.to_deterministic().sample().shape == (5, 2, 3)
    scalar = TorchDiagGaussian.from_logits(torch.randn(5, 2), event_shape=())
    assert scalar.sample().shape == (5,)
    assert scalar.logp(scalar.sample()).shape == (5,)


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), ([-2.0, 0.0], [2.0, 10.0])])
def test_squashed_gaussian_equals_torch(low, high):
    low, high = torch.tensor(low).expand(2), torch.tensor(high).expand(2)
    loc, log_std = torch.randn(64, 2), 0.3 * torch.randn(64, 2)
    ours = TorchSquashedGaussian.from_logits(
        torch.cat([loc, log_std], -1), low=low.numpy(), high=high.numpy()
    )
    squash = [
        reference.TanhTransform(cache_size=1),
        reference.AffineTransform((high + low) / 2, (high - low) / 2),
    ]
    theirs = reference.Independent(
        reference.TransformedDistribution(reference.Normal(loc, log_std.exp()), squash), 1
    )
    actions = theirs.rsample()
    inside = ((actions - low) / (high - low) - 0.5).abs().amax(-1) < 0.499
    assert inside.sum() > 40
    torch.testing.assert_close(
        ours.logp(actions)[inside], theirs.log_prob(actions)[inside], atol=1e-3, rtol=1e-3
    )
    samples, logp = ours.rsample_and_logp()
    assert ((samples >= low) & (samples <= high)).all()
    unsquashed = torch.randn(64, 2, dtype=torch.float64)
    _, exact = ours.sample_with_noise(unsquashed)
    u = loc.double() + log_std.double().exp() * unsquashed
    normal = reference.Normal(loc.double(), log_std.double().exp()).log_prob(u)
    expected = normal - torch.log(1 - u.tanh() ** 2) - ((high - low) / 2).log()
    torch.testing.assert_close(exact.double(), expected.sum(-1), atol=1e-4, rtol=1e-4)


def test_squashed_gaussian_far_from_the_middle_stays_finite():
    logits = torch.tensor([[50.0, -3.0]], requires_grad=True)
    ours = TorchSquashedGaussian.from_logits(logits)
    actions, logp = ours.rsample_and_logp()
    assert actions.item() == 1.0
    logp.sum().backward()
    assert torch.isfinite(logits.grad).all()
    assert torch.isfinite(ours.logp(torch.tensor([[1.0]]))).all()


def test_squashed_gaussian_divergence_entropy_and_greedy_action():
    one, other = torch.randn(5, 4), torch.randn(5, 4)
    squashed = [TorchSquashedGaussian.from_logits(each) for each in (one, other)]
    plain = [
        TorchDiagGaussian(each.loc, each.scale) for each in squashed
    ]  # KL is invariant under invertible maps
    torch.testing.assert_close(squashed[0].kl(squashed[1]), plain[0].kl(plain[1]))
    with pytest.raises(ValueError, match="infinite or undefined"):
        squashed[0].kl(TorchSquashedGaussian.from_logits(other, low=-2.0))
    with pytest.raises(ValueError, match="no closed form"):
        squashed[0].entropy()
    with pytest.raises(ValueError, match="`low=1.0` must be below `high=1.0`"):
        TorchSquashedGaussian.from_logits(one, low=1.0)
    greedy = TorchSquashedGaussian.from_logits(one, low=0.0, high=4.0).to_deterministic()
    torch.testing.assert_close(greedy.sample(), 2.0 + 2.0 * one[:, :2].tanh())


def test_deterministic():
    actions = torch.randn(3, 2)
    ours = TorchDeterministic.from_logits(actions)
    assert ours.sample() is not None
    torch.testing.assert_close(ours.sample(sample_shape=(4,)), actions.expand(4, 3, 2))
    assert ours.to_deterministic() is ours
    for method in (ours.entropy, lambda: ours.kl(ours)):
        with pytest.raises(RuntimeError, match="no density"):
            method()


def test_multi_categorical_is_the_sum_of_its_parts():
    logits, other = torch.randn(6, 5), torch.randn(6, 5)
    cls = TorchMultiCategorical.get_partial_dist_cls(
        space=gym.spaces.MultiDiscrete([2, 3]), input_lens=[2, 3]
    )
    ours = cls.from_logits(logits)
    parts = [reference.Categorical(logits=each) for each in (logits[:, :2], logits[:, 2:])]
    others = [reference.Categorical(logits=each) for each in (other[:, :2], other[:, 2:])]
    actions = torch.stack([each.sample() for each in parts], -1)
    expected = sum(each.log_prob(actions[:, i]) for i, each in enumerate(parts))
    torch.testing.assert_close(ours.logp(actions), expected)
    torch.testing.assert_close(ours.entropy(), sum(each.entropy() for each in parts))
    divergence = sum(map(reference.kl_divergence, parts, others))
    torch.testing.assert_close(ours.kl(cls.from_logits(other)), divergence)
    greedy = torch.stack([logits[:, :2].argmax(-1), logits[:, 2:].argmax(-1)], -1)
    torch.testing.assert_close(ours.to_deterministic().sample(), greedy)
    drawn, logp = ours.sample_with_noise(torch.rand(6, 2, dtype=torch.float64))
    torch.testing.assert_close(logp, ours.logp(drawn))
    assert ours.noise == Noise(2, "uniform")
    assert ours.sample(sample_shape=(3,)).shape == (3, 6, 2)


def test_multi_categorical_temperatures_apply():
    logits = torch.randn(6, 5)
    hot = TorchMultiCategorical.from_logits(logits, input_lens=[2, 3], temperatures=[2.0, 1.0])
    torch.testing.assert_close(hot._cats[0].probs, torch.softmax(logits[:, :2] / 2, -1))
    with pytest.raises(ValueError, match=r"`input_lens=\[2, 2\]`"):
        TorchMultiCategorical.from_logits(logits, input_lens=[2, 2])


def nested():
    """Return a class for {"arm": Box(2), "grip": Discrete(3)} with parameters [4 + 3]."""
    return TorchMultiDistribution.get_partial_dist_cls(
        child_distribution_cls_struct={"arm": TorchDiagGaussian, "grip": TorchCategorical},
        input_lens=[4, 3],
    )


def test_nested_distribution_is_the_sum_of_its_leaves():
    logits, other = torch.randn(6, 7), torch.randn(6, 7)
    ours, theirs = nested().from_logits(logits), nested().from_logits(other)
    arms = [TorchDiagGaussian.from_logits(each[:, :4]) for each in (logits, other)]
    grips = [TorchCategorical(each[:, 4:]) for each in (logits, other)]
    actions = ours.sample()
    assert list(actions) == ["arm", "grip"]
    torch.testing.assert_close(
        ours.logp(actions), arms[0].logp(actions["arm"]) + grips[0].logp(actions["grip"])
    )
    torch.testing.assert_close(ours.entropy(), arms[0].entropy() + grips[0].entropy())
    torch.testing.assert_close(ours.kl(theirs), arms[0].kl(arms[1]) + grips[0].kl(grips[1]))
    greedy = ours.to_deterministic().sample()
    torch.testing.assert_close(greedy["arm"], logits[:, :2])
    torch.testing.assert_close(greedy["grip"], logits[:, 4:].argmax(-1))
    assert nested().required_input_dim(gym.spaces.Dict()) == 7


def test_nested_distribution_turns_normal_noise_into_uniform_noise():
    logits = torch.zeros(20_000, 7)
    ours = nested().from_logits(logits)
    assert ours.noise == Noise(3, "normal")
    noise = torch.randn(20_000, 3, dtype=torch.float64)
    noise[0, 2] = 40.0  # the cumulative probability rounds to 1
    actions, logp = ours.sample_with_noise(noise)
    torch.testing.assert_close(actions["arm"], noise[:, :2].float())
    assert actions["grip"][0] == 2
    frequencies = torch.bincount(actions["grip"]) / 20_000
    torch.testing.assert_close(frequencies, torch.full((3,), 1 / 3), atol=0.015, rtol=0.0)
    torch.testing.assert_close(logp, ours.logp(actions))


class Beta(TorchDistribution):
    """A distribution as users write them."""

    def _get_torch_distribution(self, logits):
        alpha, beta = logits.exp().chunk(2, -1)
        return reference.Independent(reference.Beta(alpha, beta), 1)

    @staticmethod
    def required_input_dim(space, **kwargs):
        return 2 * int(np.prod(space.shape))


def test_custom_distribution_wraps_one_of_torch():
    logits = torch.randn(4, 6)
    ours = Beta.from_logits(logits)
    alpha, beta = logits.exp().chunk(2, -1)
    theirs = reference.Independent(reference.Beta(alpha, beta), 1)
    actions, logp = ours.sample_and_logp()
    torch.testing.assert_close(logp, theirs.log_prob(actions))
    torch.testing.assert_close(ours.entropy(), theirs.entropy())
    other = Beta.from_logits(torch.randn(4, 6))
    torch.testing.assert_close(ours.kl(other), reference.kl_divergence(theirs, other._dist))
    assert ours.rsample(sample_shape=(2,)).shape == (2, 4, 3)
    assert ours.noise is None
    with pytest.raises(NotImplementedError, match="draws its own"):
        ours.sample_with_noise(torch.zeros(4, 1))


def mixture(batch, modes=3, size=2):
    return torch.randn(*batch, modes * (1 + 2 * size), generator=torch.Generator().manual_seed(4))


def test_mixture_is_the_weighted_sum_of_its_modes():
    parameters = mixture((5,))
    ours = TorchGaussianMixture.get_partial_dist_cls(modes=3).from_logits(parameters)
    actions = torch.randn(5, 2)
    weights = parameters[:, :3].softmax(-1)
    means, log_stds = parameters[:, 3:9].view(5, 3, 2), parameters[:, 9:].view(5, 3, 2)
    densities = torch.zeros(5)
    for mode in range(3):
        normal = reference.Normal(means[:, mode], log_stds[:, mode].exp())
        densities += weights[:, mode] * normal.log_prob(actions).sum(-1).exp()
    torch.testing.assert_close(ours.logp(actions), densities.log())
    greedy = ours.to_deterministic().sample()
    torch.testing.assert_close(greedy, means[torch.arange(5), weights.argmax(-1)])
    assert ours.sample(sample_shape=(7,)).shape == (7, 5, 2)
    with pytest.raises(NotImplementedError, match="use TorchSquashedGaussian"):
        ours.rsample()


def test_estimates_of_a_mixture_of_equal_modes_are_those_of_one_gaussian():
    torch.manual_seed(0)
    one = torch.tensor([0.0, 0.0, 0.3, 0.3, -1.0, -1.0]).expand(2000, -1)
    other = torch.tensor([0.0, 0.0, 0.8, 0.8, -0.5, -0.5]).expand(2000, -1)
    ours, theirs = (TorchGaussianMixture(each, modes=2) for each in (one, other))
    first = reference.Normal(0.3, float(np.exp(-1.0)))
    second = reference.Normal(0.8, float(np.exp(-0.5)))
    assert ours.entropy().mean().item() == pytest.approx(first.entropy().item(), abs=0.02)
    divergence = reference.kl_divergence(first, second).item()
    assert ours.kl(theirs).mean().item() == pytest.approx(divergence, abs=0.02)


def test_entropy_of_a_mixture_grows_with_its_standard_deviations():
    parameters = torch.tensor([0.0, 0.0, 0.3, 0.3, -1.0, -1.0]).expand(4000, -1).clone()
    parameters.requires_grad_()
    TorchGaussianMixture(parameters, modes=2).entropy().sum().backward()
    gradient = parameters.grad.mean(0)
    # d/ds of 0.5 + ln(2 pi) / 2 + s is 1, half of it for each of the equal modes.
    assert gradient[4:].tolist() == pytest.approx([0.5, 0.5], abs=0.04)
    assert gradient[:4].tolist() == pytest.approx([0.0] * 4, abs=0.04)


def test_a_policy_with_two_modes_trains():
    class TwoModes(DefaultPPOTorchRLModule):
        action_dist_cls = TorchGaussianMixture.get_partial_dist_cls(modes=2)

    algo = (
        PPOConfig()
        .environment("Pendulum-v1")
        .env_runners(num_env_runners=0)
        .training(train_batch_size_per_learner=128, minibatch_size=64, num_epochs=2)
        .rl_module(rl_module_spec=RLModuleSpec(module_class=TwoModes))
        .build_algo()
    )
    entropy = algo.train()["learners"]["default_policy"]["entropy"]
    assert np.isfinite(entropy)
    assert algo.compute_single_action(np.zeros(3, np.float32)).shape == (1,)
    algo.stop()


@pytest.mark.parametrize(
    ("cls", "space", "size"),
    [
        (TorchCategorical, gym.spaces.Discrete(5), 5),
        (TorchDiagGaussian, gym.spaces.Box(-1, 1, (3,)), 6),
        (TorchDiagGaussian, gym.spaces.Box(-1, 1, (2, 3)), 12),
        (TorchSquashedGaussian, gym.spaces.Box(-1, 1, (3,)), 6),
        (TorchDeterministic, gym.spaces.Box(-1, 1, (3,)), 3),
        (TorchGaussianMixture, gym.spaces.Box(-1, 1, (3,)), 14),
        (TorchMultiCategorical, gym.spaces.MultiDiscrete([2, 4]), 6),
        (TorchMultiCategorical, gym.spaces.MultiBinary(3), 6),
    ],
)
def test_number_of_parameters(cls, space, size):
    assert cls.required_input_dim(space, model_config={}) == size
    with pytest.raises(TypeError, match="not for Text"):
        cls.required_input_dim(gym.spaces.Text(3))
