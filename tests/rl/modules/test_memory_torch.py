"""LSTM, GRU and attention: steps equal sequences, and attention sees its window alone."""

import math

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from syncline.rl.columns.trees import map_tree
from syncline.rl.modules.default_model_config import DefaultModelConfig
from syncline.rl.modules.rl_module import RLModuleSpec
from syncline.rl.modules.torch.actor_critic import DefaultPPOTorchRLModule
from syncline.rl.modules.torch.attention import (
    AttentionEncoderConfig,
    GRUGate,
    RelativeAttention,
    band_mask,
    sinusoids,
)
from syncline.rl.modules.torch.memory import RecurrentEncoderConfig
from syncline.rl.modules.torch.models import ENCODER_OUT

VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)
NESTED = spaces.Dict({"x": VECTOR, "k": spaces.Discrete(4)})
MEMORIES = {
    "lstm": {"use_lstm": True, "lstm_cell_size": 8},
    "gru": {"use_gru": True, "lstm_cell_size": 8},
    "attention": {
        "use_attention": True,
        "attention_num_transformer_units": 2,
        "attention_dim": 12,
        "attention_num_heads": 2,
        "attention_head_dim": 5,
        "attention_memory_inference": 4,
        "attention_memory_training": 4,
    },
}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def module(memory, space=VECTOR, **settings):
    config = DefaultModelConfig(fcnet_hiddens=[10], **MEMORIES[memory], **settings)
    built = RLModuleSpec(
        DefaultPPOTorchRLModule, space, spaces.Discrete(3), model_config=config
    ).build()
    with torch.no_grad():  # large weights, so that errors show
        for parameter in built.parameters():
            parameter.mul_(1.5)
    return built


def initial(built, rows):
    return map_tree(
        lambda leaf: np.repeat(np.asarray(leaf)[None], rows, axis=0), built.get_initial_state()
    )


def stepwise(built, obs, resets):
    """Return the outputs [T, N, K] and states before each step, acting step by step."""
    policy = built.acting_policy()
    rows = resets.shape[1]
    state, begin = initial(built, rows), initial(built, rows)
    outputs, states = [], []
    for t in range(len(resets)):
        state = map_tree(
            lambda leaf, first, t=t: np.where(
                resets[t].reshape(-1, *[1] * (leaf.ndim - 1)), first, leaf
            ),
            state,
            begin,
        )
        states.append(state)
        noise = np.full((rows, policy.noise_size), 0.5)
        columns, state = policy.act(map_tree(lambda leaf, t=t: leaf[t], obs), noise, True, state)
        outputs.append(columns["action_dist_inputs"])
    return np.stack(outputs), states


@pytest.mark.parametrize("space", [VECTOR, NESTED], ids=["vector", "nested"])
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "separate"])
@pytest.mark.parametrize("memory", MEMORIES)
def test_steps_equal_padded_sequences_that_begin_at_resets_and_recorded_states(
    memory, shared, space
):
    built = module(memory, space, vf_share_layers=shared)
    length, rows, longest = 13, 3, 5
    obs = gym.vector.utils.batch_space(space, length * rows).sample()
    obs = map_tree(lambda leaf: leaf.reshape(length, rows, *leaf.shape[1:]), obs)
    resets = np.zeros((length, rows), bool)
    resets[3, 0] = resets[4, 0] = resets[10, 1] = True
    outputs, states = stepwise(built, obs, resets)

    pieces = []
    for n in range(rows):
        begins = sorted({*range(0, length, longest), *np.flatnonzero(resets[:, n])})
        pieces += [(n, a, b) for a, b in zip(begins, [*begins[1:], length], strict=True)]

    def padded(leaf):
        found = np.zeros((len(pieces), longest, *leaf.shape[2:]), leaf.dtype)
        for i, (n, a, b) in enumerate(pieces):
            found[i, : b - a] = leaf[a:b, n]
            found[i, b - a :] = 1  # must not matter
        return torch.as_tensor(found)

    batch = {
        "obs": map_tree(padded, obs),
        "state_in": map_tree(
            lambda *leaves: torch.as_tensor(np.stack(leaves)),
            *[map_tree(lambda leaf, n=n: leaf[n], states[a]) for n, a, b in pieces],
        ),
    }
    out = built.forward_train(batch)
    assert out["action_dist_inputs"].shape == (len(pieces), longest, 3)
    for i, (n, a, b) in enumerate(pieces):
        np.testing.assert_allclose(
            out["action_dist_inputs"][i, : b - a].detach(), outputs[a:b, n], atol=1e-5
        )
    values = built.compute_values(batch)
    torch.testing.assert_close(values, built.compute_values(batch, out["embeddings"]))
    values.sum().backward()
    critic = built.encoder.encoder if shared else built.encoder.critic_encoder
    assert all(each.grad is not None for each in critic.tokenizer.parameters())


@pytest.mark.parametrize("memory", MEMORIES)
def test_state_continues_where_a_sequence_ends(memory):
    built = module(memory)
    obs = torch.randn(2, 9, 3)
    state = map_tree(torch.as_tensor, initial(built, 2))
    whole = built.forward_inference({"obs": obs, "state_in": state})
    first = built.forward_inference({"obs": obs[:, :6], "state_in": state})
    second = built.forward_inference({"obs": obs[:, 6:], "state_in": first["state_out"]})
    torch.testing.assert_close(
        torch.cat([first["action_dist_inputs"], second["action_dist_inputs"]], 1),
        whole["action_dist_inputs"],
    )
    map_tree(torch.testing.assert_close, second["state_out"], whole["state_out"])


def test_states_of_separate_networks_have_two_parts():
    state = module("lstm", vf_share_layers=False).get_initial_state()
    assert set(state) == {"actor", "critic"}
    assert {name: leaf.shape for name, leaf in state["actor"].items()} == {"h": (1, 8), "c": (1, 8)}
    assert set(module("gru").get_initial_state()) == {"h"}
    state = module("attention").get_initial_state()
    assert (state["memory"].shape, state["count"].shape) == ((2, 4, 12), ())


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("use_bias", [True, False])
def test_single_steps_equal_the_layers_of_torch(kind, use_bias):
    encoder = RecurrentEncoderConfig(
        input_dims=[4], recurrent_layer_type=kind, hidden_dim=6, num_layers=2, use_bias=use_bias
    ).build()
    state = {name: torch.randn(3, 2, 6) for name in encoder.get_initial_state()}
    obs = torch.randn(3, 5, 4)
    layers = encoder.lstm if kind == "lstm" else encoder.gru
    first = [state[name].transpose(0, 1).contiguous() for name in encoder.state_parts]
    expected, _ = layers(obs, tuple(first) if kind == "lstm" else first[0])
    for t in range(5):
        out = encoder({"obs": obs[:, t : t + 1], "state_in": state})
        torch.testing.assert_close(out[ENCODER_OUT], expected[:, t : t + 1])
        state = out["state_out"]


def test_recurrent_settings():
    config = RecurrentEncoderConfig(
        input_dims=[4], hidden_dim=6, hidden_weights_initializer="ones_",
        hidden_bias_initializer="zeros_", tokenizer_config=None,
    )  # fmt: skip
    layer = config.build().lstm
    assert (layer.weight_hh_l0 == 1).all()
    assert (layer.bias_ih_l0 == 0).all()
    with pytest.raises(ValueError, match="`recurrent_layer_type='rnn'`"):
        RecurrentEncoderConfig(recurrent_layer_type="rnn").build()
    with pytest.raises(ValueError, match=r"needs vectors, not inputs of shape \(4, 4\)"):
        RecurrentEncoderConfig(input_dims=(4, 4)).build()


# -- attention


def attention(**settings):
    config = AttentionEncoderConfig(
        input_dims=[3],
        **{"num_units": 1, "dim": 8, "num_heads": 2, "head_dim": 4, "memory": 3, "mlp_dim": 5,
           "memory_training": 3, "init_gate_bias": 0.0, **settings},
    )  # fmt: skip
    return config.build().eval()


def run(encoder, obs, state=None):
    if state is None:
        state = map_tree(
            lambda leaf: torch.as_tensor(np.repeat(leaf[None], len(obs), axis=0)),
            encoder.get_initial_state(),
        )
    return encoder({"obs": obs, "state_in": state})


@pytest.mark.parametrize("units", [1, 2])
def test_a_step_sees_itself_and_the_window_before_it_per_unit(units):
    encoder = attention(num_units=units)
    obs = torch.randn(1, 12, 3, requires_grad=True)
    out = run(encoder, obs)[ENCODER_OUT]
    (gradient,) = torch.autograd.grad(out[0, 9].sum(), obs)
    seen = gradient[0].abs().amax(-1) > 0
    farthest = 9 - 3 * units
    assert seen.tolist() == [farthest <= j <= 9 for j in range(12)]


def test_training_may_look_less_far_back():
    encoder = attention(memory_training=1)
    obs = torch.randn(1, 12, 3, requires_grad=True)
    for training, window in ((True, 1), (False, 3)):
        encoder.train(training)
        (gradient,) = torch.autograd.grad(run(encoder, obs)[ENCODER_OUT][0, 9].sum(), obs)
        seen = gradient[0].abs().amax(-1) > 0
        assert seen.tolist() == [9 - window <= j <= 9 for j in range(12)]


def test_memory_beyond_its_count_does_not_matter():
    encoder = attention()
    obs = torch.randn(2, 2, 3)
    memory = torch.randn(2, 1, 3, 8)
    count = torch.tensor([0, 2])
    out = run(encoder, obs, {"memory": memory, "count": count})
    changed = memory.clone()
    changed[0] = 99.0
    changed[1, :, 0] = 99.0
    same = run(encoder, obs, {"memory": changed, "count": count})
    torch.testing.assert_close(same[ENCODER_OUT], out[ENCODER_OUT])
    changed[1, :, 1] = 99.0
    other = run(encoder, obs, {"memory": changed, "count": count})
    assert (other[ENCODER_OUT][1, 0] - out[ENCODER_OUT][1, 0]).abs().max() > 1e-3
    assert out["state_out"]["count"].tolist() == [2, 3]


def test_mask_of_band_and_count():
    mask = band_mask(2, 3, 2, torch.tensor([0, 1, 3]))
    assert mask.int().tolist() == [
        [[0, 0, 0, 1, 0], [0, 0, 0, 1, 1]],
        [[0, 0, 1, 1, 0], [0, 0, 1, 1, 1]],
        [[0, 1, 1, 1, 0], [0, 0, 1, 1, 1]],
    ]


def test_relative_attention_equals_the_formula_of_transformer_xl():
    layer = RelativeAttention(dim=6, num_heads=2, head_dim=3, farthest=4)
    with torch.no_grad():
        layer.content_bias.normal_()
        layer.position_bias.normal_()
    joined, length = torch.randn(2, 7, 6), 3
    mask = band_mask(length, 4, 4, torch.tensor([4, 1]))
    out = layer(joined, length, mask)
    expected = torch.zeros(2, length, 6)
    positions = layer.position(sinusoids(5, 6))
    key, value = layer.key_value(joined).chunk(2, -1)
    for s in range(2):
        for t in range(length):
            query, heads = layer.query(joined[s, 4 + t]), []
            for h in range(2):
                part = slice(3 * h, 3 * h + 3)
                scores = torch.full((7,), -math.inf)
                for j in range(7):
                    if mask[s, t, j]:
                        content = (query[part] + layer.content_bias[h, 0]) @ key[s, j, part]
                        place = query[part] + layer.position_bias[h, 0]
                        distance = place @ positions[4 + t - j, part]
                        scores[j] = (content + distance) / math.sqrt(3)
                heads.append(torch.softmax(scores, 0) @ value[s, :, part])
            expected[s, t] = layer.out(torch.cat(heads))
    torch.testing.assert_close(out, expected)


def test_gate_is_that_of_a_gru_and_a_large_bias_makes_it_the_identity():
    gate = GRUGate(4, 0.5)
    x, y = torch.randn(5, 4), torch.randn(5, 4)
    wr, wz, wh = gate.from_y.weight.chunk(3)
    ur, uz = gate.from_x.weight.chunk(2)
    r = torch.sigmoid(y @ wr.T + x @ ur.T)
    z = torch.sigmoid(y @ wz.T + x @ uz.T - 0.5)
    h = torch.tanh(y @ wh.T + (r * x) @ gate.from_reset.weight.T)
    torch.testing.assert_close(gate(x, y), (1 - z) * x + z * h)
    torch.testing.assert_close(GRUGate(4, 50.0)(x, y), x)


def test_attention_remembers_what_an_observation_alone_does_not_show():
    """Learn to output the observation of two steps ago."""
    encoder = attention(memory=4, memory_training=4, dim=16, mlp_dim=16).train()
    head = torch.nn.Linear(16, 1)
    parameters = [*encoder.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=0.01)
    for _ in range(100):
        obs = torch.randint(0, 2, (32, 8, 3)).float()
        guess = head(run(encoder, obs)[ENCODER_OUT])[:, 2:, 0]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(guess, obs[:, :-2, 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1
