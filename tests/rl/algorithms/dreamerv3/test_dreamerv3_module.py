"""The networks of DreamerV3: sequences equal single steps, observations, actions, dreams."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from syncline.rl.algorithms.dreamerv3.torch.actor import ActionVectors
from syncline.rl.algorithms.dreamerv3.torch.dreamerv3_torch_rl_module import DreamerV3TorchRLModule
from syncline.rl.algorithms.dreamerv3.torch.networks import (
    ImageDecoder,
    ImageEncoder,
    ModelSize,
    model_size,
)
from syncline.rl.algorithms.dreamerv3.torch.rssm import RSSM
from syncline.rl.columns.names import Columns

SIZE = ModelSize(
    dense_units=12,
    num_dense_layers=1,
    gru_units=10,
    num_categoricals=3,
    num_classes=4,
    cnn_multiplier=2,
)


def make_rssm():
    torch.manual_seed(0)
    rssm = RSSM(SIZE, 6, 2)
    torch.nn.init.normal_(rssm.initial_h)
    return rssm


def test_a_sequence_equals_single_steps_and_restarts_at_first_rows():
    rssm = make_rssm()
    length, size = 7, 3
    embeddings, actions = torch.randn(length, size, 6), torch.randn(length, size, 2)
    noise = torch.rand(length, size, SIZE.num_categoricals)
    is_first = torch.zeros(length, size, dtype=torch.bool)
    is_first[0] = is_first[4, 1] = is_first[5, 2] = True
    found = rssm.observe(embeddings, actions, is_first, noise)
    initial_h, initial_z = rssm.initial()
    for b in range(size):
        for t in range(length):
            action = actions[t, b]
            if is_first[t, b]:
                h, z, action = initial_h, initial_z, torch.zeros(2)
            h = rssm.next_h(h, z, action)
            posterior = rssm.posterior_of(h, embeddings[t, b])
            z = rssm.sample(posterior, noise[t, b])
            torch.testing.assert_close(found.h[t, b], h)
            torch.testing.assert_close(found.z[t, b], z)
            torch.testing.assert_close(found.posterior[t, b], posterior)
            torch.testing.assert_close(found.prior[t, b], rssm.prior_of(h))


def test_a_sequence_continues_from_a_given_state():
    rssm = make_rssm()
    embeddings, actions, noise = torch.randn(6, 2, 6), torch.randn(6, 2, 2), torch.rand(6, 2, 3)
    is_first = torch.zeros(6, 2, dtype=torch.bool)
    whole = rssm.observe(embeddings, actions, is_first, noise)
    start = (whole.h[2], whole.z[2])
    rest = rssm.observe(embeddings[3:], actions[3:], is_first[3:], noise[3:], start)
    torch.testing.assert_close(rest.h, whole.h[3:])
    torch.testing.assert_close(rest.z, whole.z[3:])


def test_gradients_flow_through_time_but_not_beyond_first_rows():
    rssm = make_rssm()
    embeddings = torch.randn(4, 1, 6, requires_grad=True)
    is_first = torch.tensor([[True], [False], [True], [False]])
    found = rssm.observe(embeddings, torch.zeros(4, 1, 2), is_first, torch.rand(4, 1, 3))
    (gradient,) = torch.autograd.grad(found.h[3].sum(), embeddings)
    assert gradient[2].abs().sum() > 0
    assert not gradient[:2].any()


def module(observation_space, action_space, **config):
    torch.manual_seed(0)
    return DreamerV3TorchRLModule(
        observation_space=observation_space,
        action_space=action_space,
        model_config={"model_size": "nano", **config},
    )


SPACES = {
    "vector": gym.spaces.Box(-1.0, 1.0, (3,), np.float32),
    "discrete": gym.spaces.Discrete(5),
    "image": gym.spaces.Box(0, 255, (10, 12, 3), np.uint8),
    "dict": gym.spaces.Dict(
        {
            "camera": gym.spaces.Box(0, 255, (16, 16, 1), np.uint8),
            "position": gym.spaces.Box(-9.0, 9.0, (2,), np.float32),
            "mode": gym.spaces.Discrete(3),
        }
    ),
}
ACTIONS = {
    "discrete": gym.spaces.Discrete(4),
    "multi": gym.spaces.MultiDiscrete([2, 3]),
    "box": gym.spaces.Box(-2.0, 2.0, (2, 2), np.float32),
}


def batch_of(space, count):
    space.seed(0)
    drawn = [space.sample() for _ in range(count)]
    if isinstance(space, gym.spaces.Dict):
        return {key: np.stack([each[key] for each in drawn]) for key in space.spaces}
    return np.stack(drawn)


@pytest.mark.parametrize("obs", SPACES)
@pytest.mark.parametrize("action", ACTIONS)
def test_acting_follows_the_noise_of_each_row(obs, action):
    net = module(SPACES[obs], ACTIONS[action])
    acting = net.acting_policy()
    observations = batch_of(SPACES[obs], 4)
    noise = np.random.default_rng(0).random((4, acting.noise_size))
    columns, state = acting.act(observations, noise, True)
    again, _ = acting.act(observations, noise, True)
    np.testing.assert_array_equal(columns["actions"], again["actions"])
    for one in columns["actions"]:
        assert ACTIONS[action].contains(one.astype(ACTIONS[action].dtype))
    part = {key: value[1:3] for key, value in observations.items()} if obs == "dict" else None
    alone, _ = acting.act(observations[1:3] if part is None else part, noise[1:3], True)
    np.testing.assert_allclose(columns["actions"][1:3], alone["actions"], atol=1e-6)
    following, _ = acting.act(observations, noise, True, state)
    assert following["actions"].shape == columns["actions"].shape
    assert not state["is_first"].any()


def test_acting_and_training_compute_the_same_states():
    net = module(SPACES["vector"], ACTIONS["discrete"])
    torch.nn.init.normal_(net.world_model.rssm.initial_h)
    obs = torch.randn(2, 5, 3)
    state = {name: torch.as_tensor(each).expand(2, -1) for name, each in
             net.get_initial_state().items()}  # fmt: skip
    noise = torch.rand(5, 2, net.num_noise)
    actions, latents = [], []
    for t in range(5):
        action, state = net.act(obs[:, t], state, noise[t], True)
        actions.append(action)
        latents.append((state["h"], state["z"]))
    encoded = net.vectors.encode(torch.stack(actions))
    before = torch.cat([torch.zeros_like(encoded[:1]), encoded[:-1]])
    is_first = torch.zeros(5, 2, dtype=torch.bool)
    is_first[0] = True
    model = net.world_model
    embeddings = model.encoder(*model.observations.parts(obs.transpose(0, 1)))
    observed = model.rssm.observe(embeddings, before, is_first, noise[:, :, :4])
    torch.testing.assert_close(observed.h, torch.stack([h for h, _ in latents]))
    found = observed.z.unflatten(-1, (4, 4)).argmax(-1)
    assert torch.equal(found, torch.stack([z for _, z in latents]))


def test_sequences_for_acting_return_the_state_after_the_last_step():
    net = module(SPACES["image"], ACTIONS["box"])
    state = {name: torch.as_tensor(each).expand(2, -1) for name, each in
             net.get_initial_state().items()}  # fmt: skip
    obs = torch.randint(0, 255, (2, 3, 10, 12, 3), dtype=torch.uint8)
    out = net.forward_inference({Columns.OBS: obs, Columns.STATE_IN: state})
    assert out[Columns.ACTIONS].shape == (2, 3, 2, 2)
    assert out[Columns.STATE_OUT]["h"].shape == (2, 16)


def test_sequences_continue_in_recorded_states():
    net = module(SPACES["vector"], ACTIONS["discrete"], use_stored_states=True)
    acting = net.acting_policy()
    random = np.random.default_rng(0)
    state, rows = None, []
    for _ in range(5):
        obs = random.normal(size=(2, 3)).astype(np.float32)
        columns, state = acting.act(obs, random.random((2, acting.noise_size)), True, state)
        rows.append({"obs": obs, "h": state["h"], **columns})
    batch = {
        name: torch.from_numpy(np.stack([row[name] for row in rows[3:]], 1))
        for name in ("obs", "actions")
    }
    batch["is_first"] = torch.zeros(2, 2, dtype=torch.bool)
    for start, name in (("h", "latent_h"), ("z", "latent_z"), ("action", "actions")):
        batch[f"start_{start}"] = torch.from_numpy(rows[2][name])
    observed = net.forward_train(batch)["observed"]
    np.testing.assert_allclose(observed.h[0].detach(), rows[3]["h"], atol=1e-5)


def test_dreams_begin_in_every_observed_state_and_follow_the_prior():
    net = module(SPACES["vector"], ACTIONS["discrete"])
    batch = {
        Columns.OBS: torch.randn(2, 3, 3),
        Columns.ACTIONS: torch.randint(4, (2, 3)),
        "is_first": torch.tensor([[True, False, False]] * 2),
    }
    out = net.forward_train(batch)
    torch.manual_seed(5)
    dream = net.dream(out["observed"], 4)
    assert dream.features.shape == (5, 6, 32)
    assert dream.actions.shape == (4, 6, 4)
    torch.testing.assert_close(dream.features[0], out["observed"].features.flatten(0, 1))
    rssm = net.world_model.rssm
    h, z = dream.features.split([16, 16], -1)
    torch.testing.assert_close(h[1:], rssm.next_h(h[:-1], z[:-1], dream.actions))
    torch.manual_seed(5)
    noise = torch.rand(4, 6, net.num_noise)[..., :4]
    torch.testing.assert_close(z[1:], rssm.sample(rssm.prior_of(h[1:]), noise))
    assert not dream.features.requires_grad


def test_runners_need_encoder_state_model_and_actor_only():
    spaces = SPACES["vector"], ACTIONS["discrete"]
    full = module(*spaces)
    light = DreamerV3TorchRLModule(
        observation_space=spaces[0],
        action_space=spaces[1],
        model_config={"model_size": "nano"},
        inference_only=True,
    )
    light.set_state(full.get_state(inference_only=True))
    noise = np.random.default_rng(0).random((3, full.num_noise))
    obs = batch_of(spaces[0], 3)
    expected, _ = full.acting_policy().act(obs, noise, True)
    found, _ = light.acting_policy().act(obs, noise, True)
    np.testing.assert_array_equal(expected["actions"], found["actions"])
    assert not hasattr(light, "critic")
    assert not hasattr(light.world_model, "decoder")


@pytest.mark.parametrize("shape", [(8, 8, 3), (10, 13, 1), (16, 16, 3), (64, 64, 3)])
def test_images_of_any_size_pass_encoder_and_decoder(shape):
    encoder, decoder = ImageEncoder(shape, 2), ImageDecoder(5, shape, SIZE)
    assert encoder(torch.rand(2, 4, *shape)).shape == (2, 4, encoder.num_outputs)
    assert decoder(torch.randn(2, 4, 5)).shape == (2, 4, *shape)


def test_log_probabilities_and_entropies_of_actions():
    net = module(SPACES["vector"], ACTIONS["multi"])
    torch.nn.init.normal_(net.actor.mlp[-1].weight)
    features = torch.randn(5, 32)
    inputs = net.actor(features)
    actions = net.actor.sample(inputs, torch.rand(5, 2))
    logp, entropy = net.actor.logp_and_entropy(inputs, actions)
    parts = [torch.distributions.Categorical(probs=each) for each in inputs]
    chosen = net.vectors.decode(actions)
    expected = sum(each.log_prob(chosen[:, i]) for i, each in enumerate(parts))
    torch.testing.assert_close(logp, expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(entropy, sum(each.entropy() for each in parts))
    net = module(SPACES["vector"], ACTIONS["box"])
    torch.nn.init.normal_(net.actor.mlp[-1].weight)
    mean, std = inputs = net.actor(features)
    actions = net.actor.sample(inputs, torch.rand(5, 4))
    normal = torch.distributions.Normal(mean, std)
    logp, entropy = net.actor.logp_and_entropy(inputs, actions)
    torch.testing.assert_close(logp, normal.log_prob(actions).sum(-1))
    torch.testing.assert_close(entropy, normal.entropy().sum(-1))


def test_model_sizes_have_names_and_single_widths_replace_them():
    assert model_size({"model_size": "XL"}).gru_units == 4096
    assert model_size({"model_size": "nano", "gru_units": 77}).gru_units == 77
    with pytest.raises(ValueError, match="Did you mean 'micro'"):
        model_size({"model_size": "mirco"})


def test_unknown_action_spaces_are_refused():
    with pytest.raises(ValueError, match="flatten the action space"):
        ActionVectors(gym.spaces.Dict({"a": gym.spaces.Discrete(2)}))
