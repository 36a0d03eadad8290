"""The dynamics model of MBPO: batched members, training, predictions."""

import numpy as np
import pytest
import torch
from torch.nn.functional import silu, softplus

from syncline.rl.algorithms.mbpo.torch.dynamics import Dynamics, DynamicsOptions
from syncline.rl.algorithms.mbpo.torch.ensemble import DynamicsEnsemble
from syncline.rl.runners.threads import limited_threads


def ensemble(members=3):
    return DynamicsEnsemble(
        members=members, inputs=4, outputs=3, hiddens=[8, 6], random=np.random.default_rng(0)
    )


def test_forward_pass_equals_a_loop_over_the_members():
    model = ensemble()
    for bias in (layer.bias for layer in (*model.hidden, model.head)):
        torch.nn.init.normal_(bias)
    x = torch.randn(3, 5, 4)
    mean, log_variance, logit = model(x)
    for e in range(3):
        hidden = x[e]
        for layer in model.hidden:
            hidden = silu(hidden @ layer.weight[e] + layer.bias[e])
        out = hidden @ model.head.weight[e] + model.head.bias[e]
        torch.testing.assert_close(mean[e], out[:, :3])
        high, low = model.largest_log_variance[e], model.least_log_variance[e]
        bounded = high - softplus(high - out[:, 3:6])
        torch.testing.assert_close(log_variance[e], low + softplus(bounded - low))
        torch.testing.assert_close(logit[e], out[:, 6])


def test_loss_is_the_likelihood_of_each_member_alone():
    model = ensemble()
    x, targets = torch.randn(3, 5, 4), torch.randn(3, 5, 3)
    ends = (torch.rand(3, 5) < 0.5).float()
    losses = model.loss(x, targets, ends)
    mean, log_variance, logit = model(x)
    width = (model.largest_log_variance - model.least_log_variance).sum((-2, -1))
    for e in range(3):
        normal = torch.distributions.Normal(mean[e], (0.5 * log_variance[e]).exp())
        likelihood = normal.log_prob(targets[e]).mean() + 0.5 * np.log(2.0 * np.pi)
        terminal = torch.distributions.Bernoulli(logits=logit[e]).log_prob(ends[e]).mean()
        expected = -2.0 * likelihood - terminal + 0.01 * width[e]
        torch.testing.assert_close(losses[e], expected, rtol=1e-4, atol=1e-5)
    (gradient,) = torch.autograd.grad(losses[1], model.head.weight)
    assert gradient[1].abs().sum() > 0
    assert not gradient[[0, 2]].any()


def transitions(count, noise=0.05, seed=0):
    """Return steps of x' = x + 0.5 a + noise, reward x_0 - a_0, terminal beyond 1."""
    random = np.random.default_rng(seed)
    obs = random.uniform(-1.0, 1.0, (count, 2)).astype(np.float32)
    actions = random.uniform(-1.0, 1.0, (count, 2)).astype(np.float32)
    new_obs = obs + 0.5 * actions + noise * random.standard_normal((count, 2))
    return {
        "obs": obs,
        "actions": actions,
        "rewards": obs[:, 0] - actions[:, 0],
        "new_obs": new_obs.astype(np.float32),
        "terminateds": new_obs[:, 0] > 1.0,
    }


def trained(count=800, **options):
    dynamics = Dynamics(
        observation_size=2,
        action_size=2,
        options=DynamicsOptions(
            ensemble_size=4, num_elites=2, fcnet_hiddens=[24], lr=1e-2, patience=3, **options
        ),
        random=np.random.default_rng(1),
    )
    with limited_threads(1):
        return dynamics, dynamics.fit(transitions(count))


def test_predictions_have_the_rewards_terminals_and_noise_of_the_data():
    dynamics, report = trained(train_epochs=100)
    assert 3 < report.num_epochs <= 100
    test = transitions(4000, seed=9)
    new_obs, rewards, terminated = dynamics.predict(test["obs"], test["actions"])
    exact = test["obs"] + 0.5 * test["actions"]
    residuals = new_obs - exact
    assert np.abs(residuals.mean(0)).max() < 0.02
    np.testing.assert_allclose(residuals.std(0), 0.05, rtol=0.4)
    np.testing.assert_allclose(rewards, test["rewards"], atol=0.25)
    clear = np.abs(exact[:, 0] - 1.0) > 0.1
    assert (terminated == (exact[:, 0] > 1.0))[clear].mean() > 0.99
    assert terminated.any()


def test_each_row_comes_from_one_of_the_elites():
    dynamics, _ = trained(400)
    head = dynamics.ensemble.head
    with torch.no_grad():  # reward of member e is e, without noise
        head.weight.zero_()
        head.bias.zero_()
        head.bias[:, 0, 2] = torch.arange(4.0)
        dynamics.ensemble.least_log_variance.fill_(-50.0)
        dynamics.ensemble.largest_log_variance.fill_(-40.0)
    dynamics._mean[:], dynamics._std[:] = 0.0, 1.0
    dynamics.elites = np.array([3, 1])
    obs = np.ones((101, 2), np.float32)
    _, rewards, _ = dynamics.predict(obs, np.zeros((101, 2), np.float32))
    members, counts = np.unique(np.round(rewards), return_counts=True)
    assert members.tolist() == [1.0, 3.0]
    assert sorted(counts) == [50, 51]


def test_training_keeps_the_best_weights_of_each_member_and_stops():
    dynamics, report = trained(300, train_epochs=40)
    assert report.num_epochs <= 40
    assert len(dynamics.elites) == 2
    data, ends = dynamics._rows(transitions(300))
    scaled = torch.from_numpy((data - dynamics._mean) / dynamics._std)
    errors = dynamics.ensemble.errors(scaled[:, :4], scaled[:, 4:], torch.from_numpy(ends))
    assert errors[dynamics.elites].mean() < 0.2
    one_pass, first = trained(300, train_epochs=1)
    assert first.num_epochs == 1
    assert first.validation_error > report.validation_error


def test_restored_model_predicts_and_trains_on_the_same():
    dynamics, _ = trained(300, train_epochs=3)
    random = np.random.default_rng(1)
    other = Dynamics(observation_size=2, action_size=2, options=dynamics.options, random=random)
    other.set_state(dynamics.get_state())
    random.bit_generator.state = dynamics._random.bit_generator.state
    for each in (dynamics, other):
        with limited_threads(1):
            each.fit(transitions(320))
    test = transitions(20, seed=3)
    for one, two in zip(
        dynamics.predict(test["obs"], test["actions"]),
        other.predict(test["obs"], test["actions"]),
        strict=True,
    ):
        np.testing.assert_array_equal(one, two)
    smaller = DynamicsOptions(ensemble_size=2, num_elites=1, fcnet_hiddens=[3])
    small = Dynamics(observation_size=2, action_size=2, options=smaller, random=random)
    with pytest.raises(ValueError, match="same `dynamics_model`"):
        small.set_state(dynamics.get_state())
