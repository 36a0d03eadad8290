"""Acting: NumPy equals torch, noise decides everything, custom modules and distributions."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from syncline.rl.columns.trees import leaves, map_tree
from syncline.rl.modules.acting import acting_policy
from syncline.rl.modules.numpy_acting import ACTIVATIONS, NumpyActing
from syncline.rl.modules.rl_module import RLModuleSpec
from syncline.rl.modules.torch.actor_critic import DefaultPPOTorchRLModule
from syncline.rl.modules.torch.catalog import PPOCatalog
from syncline.rl.modules.torch.distributions.base import TorchDistribution
from syncline.rl.modules.torch.distributions.categorical import TorchCategorical
from syncline.rl.modules.torch.distributions.gaussian import (
    TorchDiagGaussian,
    TorchSquashedGaussian,
)
from syncline.rl.modules.torch.torch_acting import TorchActing
from syncline.rl.modules.torch.torch_rl_module import TorchRLModule

VECTOR = spaces.Box(-1.0, 1.0, (4,), np.float32)
DISCRETE = spaces.Discrete(3)
CONTINUOUS = spaces.Box(-1.0, 1.0, (2,), np.float32)
ROWS = 16


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def build(action_space=DISCRETE, cls=DefaultPPOTorchRLModule, obs=VECTOR, catalog=None, **settings):
    settings = {"fcnet_hiddens": [8, 8], **settings}
    return RLModuleSpec(
        cls, obs, action_space, model_config=settings, catalog_class=catalog
    ).build()


def observations(rows=ROWS, seed=0):
    return np.random.default_rng(seed).standard_normal((rows, 4)).astype(np.float32)


def noise_for(policy, rows=ROWS, seed=1):
    rng = np.random.default_rng(seed)
    draw = rng.random if policy.noise_kind == "uniform" else rng.standard_normal
    return draw((rows, policy.noise_size))


class PlainTorch(TorchActing):
    """Acting through the distribution objects alone."""

    def __init__(self, module):
        super().__init__(module)
        self._sampler = None


@pytest.mark.parametrize(
    ("space", "settings"),
    [
        (DISCRETE, {}),
        (DISCRETE, {"vf_share_layers": False, "head_fcnet_hiddens": [5]}),
        (CONTINUOUS, {}),
        (CONTINUOUS, {"free_log_std": True}),
        (CONTINUOUS, {"log_std_clip_param": 0.01}),
        (CONTINUOUS, {"log_std_clip_param": 0.01, "free_log_std": True}),
        (CONTINUOUS, {"log_std_clip_param": float("inf")}),
        *((DISCRETE, {"fcnet_activation": name}) for name in ACTIVATIONS),
    ],
    ids=str,
)
def test_numpy_equals_torch(space, settings):
    module = build(space, **settings)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    fast, slow = acting_policy(module), PlainTorch(module)
    assert isinstance(fast, NumpyActing)
    assert (fast.noise_size, fast.noise_kind) == (slow.noise_size - 1, slow.noise_kind)
    noise = noise_for(slow)
    for explore in (True, False):
        ours, _ = fast.act(observations(), noise[:, :-1], explore)
        theirs, _ = slow.act(observations(), noise, explore)
        for name, column in ours.items():
            assert column.dtype == theirs[name].dtype
            np.testing.assert_allclose(column, theirs[name], atol=1e-6, rtol=1e-5)
    assert set(ours) == {"actions"}


def test_columns_of_exploration():
    module = build()
    columns, state = acting_policy(module).act(observations(), np.full((ROWS, 1), 0.5), True)
    assert state is None
    assert set(columns) == {"actions", "action_logp", "action_dist_inputs"}
    dist = TorchCategorical(torch.as_tensor(columns["action_dist_inputs"]))
    logp = dist.logp(torch.as_tensor(columns["actions"]))
    np.testing.assert_allclose(columns["action_logp"], logp, atol=1e-6)


def test_observations_of_another_dtype_become_floats():
    policy = acting_policy(build())
    obs = observations()
    noise = noise_for(policy)
    expected, _ = policy.act(obs, noise, True)
    columns, _ = policy.act(obs.astype(np.float64), noise, True)
    np.testing.assert_array_equal(columns["action_dist_inputs"], expected["action_dist_inputs"])


def test_columns_of_earlier_steps_are_not_overwritten():
    policy = acting_policy(build(CONTINUOUS))
    obs = observations()
    first, _ = policy.act(obs, noise_for(policy, seed=1), True)
    kept = map_tree(np.copy, first)
    policy.act(observations(seed=5), noise_for(policy, seed=2), True)
    map_tree(np.testing.assert_array_equal, first, kept)
    np.testing.assert_array_equal(obs, observations())


def test_updates_in_place_and_new_memory_of_the_weights_are_seen():
    module = build()
    policy, obs, noise = acting_policy(module), observations(), np.full((ROWS, 1), 0.5)

    def logits():
        return policy.act(obs, noise, True)[0]["action_dist_inputs"]

    def expected():
        batch = {"obs": torch.as_tensor(obs)}
        return module.forward_inference(batch)["action_dist_inputs"].numpy()

    before = logits()
    module.set_state({name: value + 0.5 for name, value in module.get_state().items()})
    np.testing.assert_allclose(logits(), expected(), atol=1e-6)
    assert np.abs(logits() - before).max() > 0.1
    for parameter in module.parameters():  # as optimizers with one flat buffer do
        parameter.data = parameter.data.clone() - 0.2
    np.testing.assert_allclose(logits(), expected(), atol=1e-6)


@pytest.mark.parametrize("policy", [acting_policy, PlainTorch, TorchActing])
def test_frequencies_of_samples_are_the_probabilities(policy):
    module = build()
    rows = 20_000
    acting = policy(module)
    obs = np.repeat(observations(1), rows, axis=0)
    columns, _ = acting.act(obs, noise_for(acting, rows), True)
    logits = torch.as_tensor(columns["action_dist_inputs"][0])
    frequencies = np.bincount(columns["actions"], minlength=3) / rows
    np.testing.assert_allclose(frequencies, torch.softmax(logits, -1), atol=0.015)


def test_masked_actions_are_never_sampled_in_numpy():
    module = build(spaces.Discrete(5))
    with torch.no_grad():
        module.pi.net.mlp[0].bias[[0, 3, 4]] = torch.finfo(torch.float32).min
    policy = acting_policy(module)
    for u in (0.0, 0.5, 1.0 - 2.0**-53):
        actions = policy.act(observations(), np.full((ROWS, 1), u), True)[0]["actions"]
        assert set(actions) <= {1, 2}


def test_a_row_depends_on_its_own_noise_only():
    policy = acting_policy(build(CONTINUOUS, use_lstm=True, lstm_cell_size=6))
    obs, noise = observations(), noise_for(policy)
    state = policy.initial_state(ROWS)
    whole, _ = policy.act(obs, noise, True, state)
    part, _ = policy.act(obs[4:7], noise[4:7], True, map_tree(lambda leaf: leaf[4:7], state))
    np.testing.assert_allclose(part["actions"], whole["actions"][4:7], atol=1e-6)


class Overrides(DefaultPPOTorchRLModule):
    def _forward_exploration(self, batch, **kwargs):
        output = super()._forward_exploration(batch, **kwargs)
        return {**output, "extra": batch["obs"][:, :1] * 2.0}


def test_classes_that_override_a_forward_method_act_through_it():
    module = build(cls=Overrides)
    policy = acting_policy(module)
    assert isinstance(policy, TorchActing)
    columns, _ = policy.act(observations(), noise_for(policy), True)
    np.testing.assert_allclose(columns["extra"], observations()[:, :1] * 2.0)
    hooked = build()
    hooked._forward_exploration = lambda batch: {"actions": torch.zeros(len(batch["obs"]))}
    assert isinstance(acting_policy(hooked), TorchActing)
    subclassed = build(cls=type("Renamed", (DefaultPPOTorchRLModule,), {}))
    assert isinstance(acting_policy(subclassed), NumpyActing)


@pytest.mark.parametrize(
    "settings",
    [{"fcnet_use_layernorm": True}, {"fcnet_activation": "Softplus"}, {"use_gru": True}],
    ids=str,
)
def test_other_networks_act_in_torch(settings):
    assert type(acting_policy(build(**settings))) is TorchActing


@pytest.mark.parametrize(
    "space",
    [
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiBinary(2),
        spaces.Box(-1, 1, (2, 3)),
        spaces.Dict({"arm": CONTINUOUS, "grip": spaces.Tuple([DISCRETE, spaces.MultiBinary(2)])}),
    ],
    ids=str,
)
def test_nested_and_other_actions(space):
    module = build(space)
    policy = acting_policy(module)
    noise = noise_for(policy)
    columns, _ = policy.act(observations(), noise, True)
    again, _ = policy.act(observations(), noise, True)
    map_tree(np.testing.assert_array_equal, columns["actions"], again["actions"])
    dist = module.get_train_action_dist_cls().from_logits(
        torch.as_tensor(columns["action_dist_inputs"])
    )
    logp = dist.logp(map_tree(torch.as_tensor, columns["actions"]))
    np.testing.assert_allclose(columns["action_logp"], logp, atol=1e-5)
    other, _ = policy.act(observations(), noise_for(policy, seed=9), True)
    assert any(
        not np.array_equal(one, two)
        for one, two in zip(leaves(columns["actions"]), leaves(other["actions"]), strict=True)
    )
    greedy, _ = policy.act(observations(), noise, False)
    map_tree(
        lambda ours, theirs: np.testing.assert_allclose(ours, theirs),
        greedy["actions"],
        map_tree(lambda leaf: leaf.numpy(), dist.to_deterministic().sample()),
    )


class ChoosesItself(TorchRLModule):
    """Draws its actions in the forward pass, as autoregressive modules do."""

    def setup(self):
        self.net = nn.Linear(4, 3)

    def _forward(self, batch, **kwargs):
        dist = TorchCategorical(self.net(batch["obs"]))
        actions = dist.sample()
        return {"actions": actions, "action_dist_inputs": dist.logits}


def test_modules_that_draw_themselves_are_seeded_by_the_noise():
    policy = acting_policy(build(cls=ChoosesItself))
    noise = noise_for(policy)
    before = torch.get_rng_state()
    first, _ = policy.act(observations(), noise, True)
    assert torch.equal(torch.get_rng_state(), before)
    again, _ = policy.act(observations(), noise, True)
    np.testing.assert_array_equal(first["actions"], again["actions"])
    others = [policy.act(observations(), noise_for(policy, seed=s), True)[0] for s in range(5)]
    assert any(not np.array_equal(first["actions"], each["actions"]) for each in others)
    dist = TorchCategorical(torch.as_tensor(first["action_dist_inputs"]))
    expected = dist.logp(torch.as_tensor(first["actions"]))
    np.testing.assert_allclose(first["action_logp"], expected, atol=1e-6)


class Beta(TorchDistribution):
    def _get_torch_distribution(self, logits):
        alpha, beta = logits.exp().chunk(2, -1)
        return torch.distributions.Independent(torch.distributions.Beta(alpha, beta), 1)

    @staticmethod
    def required_input_dim(space, **kwargs):
        return 2 * int(np.prod(space.shape))

    def to_deterministic(self):
        return TorchDiagGaussian(self._dist.mean, torch.zeros(())).to_deterministic()


class WithBeta(PPOCatalog):
    def get_action_dist_cls(self, framework="torch"):
        return Beta


def test_custom_distributions_are_seeded_by_the_noise():
    module = build(CONTINUOUS, catalog=WithBeta)
    policy = acting_policy(module)
    noise = noise_for(policy)
    first, _ = policy.act(observations(), noise, True)
    again, _ = policy.act(observations(), noise, True)
    np.testing.assert_array_equal(first["actions"], again["actions"])
    dist = Beta.from_logits(torch.as_tensor(first["action_dist_inputs"]))
    logp = dist.logp(torch.as_tensor(first["actions"]))
    np.testing.assert_allclose(first["action_logp"], logp, atol=1e-5)
    greedy, _ = policy.act(observations(), noise, False)
    np.testing.assert_allclose(greedy["actions"], dist._dist.mean, atol=1e-5)


class Cold(TorchCategorical):
    """Changes how it is built; the base class may still sample for it."""

    def __init__(self, logits):
        super().__init__(logits, temperature=0.01)


class Biased(TorchCategorical):
    """Changes how it samples."""

    def sample(self, **kwargs):
        return torch.full(self.logits.shape[:-1], 2)


class WithSquashed(PPOCatalog):
    def get_action_dist_cls(self, framework="torch"):
        return TorchSquashedGaussian


def test_subclasses_of_distributions_keep_what_they_change():
    module = build()
    module.action_dist_cls = Cold
    policy = acting_policy(module)
    obs = observations()
    cold, _ = policy.act(obs, noise_for(policy), True)
    logits = cold["action_dist_inputs"]
    clear = np.sort(logits, 1)[:, -1] - np.sort(logits, 1)[:, -2] > 0.1
    np.testing.assert_array_equal(cold["actions"][clear], logits.argmax(1)[clear])
    module.action_dist_cls = Biased
    policy = acting_policy(module)
    biased, _ = policy.act(obs, noise_for(policy), True)
    assert (biased["actions"] == 2).all()
    dist = TorchCategorical(torch.as_tensor(biased["action_dist_inputs"]))
    np.testing.assert_allclose(biased["action_logp"], dist.logp(torch.full((ROWS,), 2)), atol=1e-6)


def test_squashed_actions():
    module = build(CONTINUOUS, catalog=WithSquashed)
    policy = acting_policy(module)
    assert (policy.noise_size, policy.noise_kind) == (3, "normal")
    columns, _ = policy.act(observations(), noise_for(policy), True)
    assert np.abs(columns["actions"]).max() < 1.0
    dist = TorchSquashedGaussian.from_logits(torch.as_tensor(columns["action_dist_inputs"]))
    logp = dist.logp(torch.as_tensor(columns["actions"]))
    np.testing.assert_allclose(columns["action_logp"], logp, atol=1e-3)


class Silent(TorchRLModule):
    def setup(self):
        self.net = nn.Linear(4, 3)

    def _forward(self, batch, **kwargs):
        return {"embeddings": self.net(batch["obs"])}


def test_module_that_returns_nothing_to_act_with_is_named():
    policy = acting_policy(build(cls=Silent))
    with pytest.raises(ValueError, match=r"Silent returned \['embeddings'\] for acting"):
        policy.act(observations(), noise_for(policy), True)


def test_nested_and_read_only_observations():
    space = spaces.Dict({"x": VECTOR, "k": spaces.Discrete(4)})
    policy = acting_policy(build(obs=space))
    obs = {"x": observations(), "k": np.arange(ROWS) % 4}
    noise = noise_for(policy)
    expected, _ = policy.act(obs, noise, True)
    for leaf in obs.values():
        leaf.flags.writeable = False
    obs["k"] = obs["k"][::-1][::-1]
    columns, _ = policy.act(obs, noise, True)
    np.testing.assert_array_equal(columns["actions"], expected["actions"])
