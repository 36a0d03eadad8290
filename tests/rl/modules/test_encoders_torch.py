"""Encoders, heads and the catalog that chooses them."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from syncline.rl.columns.trees import map_tree
from syncline.rl.modules.default_model_config import DefaultModelConfig
from syncline.rl.modules.torch.catalog import Catalog, PPOCatalog
from syncline.rl.modules.torch.distributions.gaussian import TorchDiagGaussian
from syncline.rl.modules.torch.encoders import (
    CNNEncoderConfig,
    MLPEncoderConfig,
    MultiStreamEncoderConfig,
    default_filters,
)
from syncline.rl.modules.torch.heads import (
    CNNTransposeHeadConfig,
    FreeLogStdMLPHeadConfig,
    MLPHeadConfig,
)
from syncline.rl.modules.torch.models import ENCODER_OUT, Encoder, ModelConfig, TorchModel
from syncline.rl.modules.torch.observations import to_vector
from syncline.rl.modules.torch.primitives import TorchCNNTranspose, TorchMLP

VECTOR = spaces.Box(-1.0, 1.0, (4,), np.float32)
IMAGE = spaces.Box(0, 255, (16, 20, 3), np.uint8)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def catalog(observation_space, action_space=None, cls=Catalog, **settings):
    settings = {"fcnet_hiddens": [8], **settings}
    return cls(observation_space, action_space or spaces.Discrete(2), settings)


def encode(space, value, **settings):
    encoder = catalog(space, **settings).build_encoder()
    return encoder({"obs": map_tree(torch.as_tensor, value)})[ENCODER_OUT]


def test_layers_in_order():
    mlp = TorchMLP(
        input_dim=4,
        hidden_layer_dims=[8],
        hidden_layer_activation="relu",
        hidden_layer_use_layernorm=True,
        output_dim=2,
        output_activation="tanh",
    ).mlp
    assert [type(each) for each in mlp] == [nn.Linear, nn.LayerNorm, nn.ReLU, nn.Linear, nn.Tanh]


def test_activations_by_name():
    for name, cls in [("swish", nn.SiLU), ("Softplus", nn.Softplus), (nn.Mish, nn.Mish)]:
        mlp = TorchMLP(input_dim=1, hidden_layer_dims=[1], hidden_layer_activation=name).mlp
        assert type(mlp[1]) is cls
    for name in ("linear", None):
        assert (
            len(TorchMLP(input_dim=1, hidden_layer_dims=[1], hidden_layer_activation=name).mlp) == 1
        )
    with pytest.raises(ValueError, match="Unknown activation 'tahn'.* mean 'tanh'"):
        TorchMLP(input_dim=1, hidden_layer_dims=[1], hidden_layer_activation="tahn")


def test_initializers_by_name_or_function():
    mlp = TorchMLP(
        input_dim=4,
        hidden_layer_dims=[3],
        hidden_layer_weights_initializer="constant_",
        hidden_layer_weights_initializer_config={"val": 2.0},
        hidden_layer_bias_initializer=nn.init.ones_,
    ).mlp
    assert (mlp[0].weight == 2.0).all()
    assert (mlp[0].bias == 1.0).all()
    for name in ("xavier_uniform", "xavier_unifrom_"):
        with pytest.raises(ValueError, match="no in-place initializer.*xavier_uniform_"):
            TorchMLP(input_dim=1, hidden_layer_dims=[1], hidden_layer_weights_initializer=name)


def test_vector_encoder_takes_any_leading_dimensions_and_dtype():
    assert encode(VECTOR, np.zeros((5, 4), np.float32)).shape == (5, 8)
    assert encode(VECTOR, np.zeros((5, 6, 4), np.float64)).shape == (5, 6, 8)
    assert encode(spaces.Box(0, 9, (4,), np.int64), np.zeros((5, 4), np.int64)).shape == (5, 8)


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding"),
    [((9, 12), 4, 2, "same"), ((9, 12), (3, 5), (1, 3), "same"), ((9, 12), (3, 4), 2, "valid")],
)
def test_size_after_convolutions_is_as_announced(size, kernel, stride, padding):
    config = CNNEncoderConfig(
        input_dims=(*size, 3),
        cnn_filter_specifiers=[[5, kernel, stride, padding]],
        flatten_at_end=False,
    )
    out = config.build()({"obs": torch.zeros(2, *size, 3)})[ENCODER_OUT]
    assert out.shape == (2, *config.output_dims)
    config.flatten_at_end = True
    assert config.build()({"obs": torch.zeros(2, 7, *size, 3)})[ENCODER_OUT].shape == (
        2, 7, config.output_dims[0],
    )  # fmt: skip


def test_same_padding_keeps_the_image_in_the_middle():
    config = CNNEncoderConfig(
        input_dims=(5, 5, 1), cnn_filter_specifiers=[[1, 3, 1]], cnn_activation=None,
        cnn_kernel_initializer="ones_", cnn_bias_initializer="zeros_", flatten_at_end=False,
    )  # fmt: skip
    image = torch.zeros(1, 5, 5, 1)
    image[0, 0, 2] = 1.0
    out = config.build()({"obs": image})[ENCODER_OUT][0, :, :, 0]
    expected = torch.zeros(5, 5)
    expected[0:2, 1:4] = 1.0
    torch.testing.assert_close(out, expected)


def test_images_of_bytes_are_scaled():
    encoder = catalog(IMAGE).build_encoder()
    image = torch.randint(0, 256, (2, 16, 20, 3), dtype=torch.uint8)
    torch.testing.assert_close(
        encoder({"obs": image})[ENCODER_OUT], encoder({"obs": image / 255.0})[ENCODER_OUT]
    )


@pytest.mark.parametrize(
    "size", [(8, 8), (10, 10), (42, 42), (64, 64), (84, 84), (96, 96), (30, 210)]
)
def test_default_convolutions_leave_a_small_image(size):
    config = CNNEncoderConfig(
        input_dims=(*size, 1), cnn_filter_specifiers=default_filters(size), flatten_at_end=False
    )
    assert 1 <= max(config.output_dims[:2]) <= 12


def test_wrong_convolutions_are_named():
    with pytest.raises(ValueError, match=r"\[16, 4\] is not a convolution"):
        catalog(IMAGE, conv_filters=[[16, 4]])
    with pytest.raises(ValueError, match="kernel \\(20, 20\\) and padding 'valid' does not fit"):
        catalog(IMAGE, conv_filters=[[16, 20, 1, "valid"]])


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(5, start=3),
        spaces.MultiDiscrete([2, 3], start=[1, -1]),
        spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])),
        spaces.MultiBinary([2, 3]),
        spaces.Box(-1, 1, (3, 4)),
        spaces.Box(-1, 1, ()),
        spaces.Box(0, 255, (3, 3, 2), np.uint8),
        spaces.Dict(
            {"a": VECTOR, "b": spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2, 2))])}
        ),
    ],
    ids=str,
)
def test_observations_become_the_vectors_of_gymnasium(space):
    space.seed(1)
    samples = [space.sample() for _ in range(4)]
    encoder = catalog(space).build_encoder()
    seen = []
    encoder.net.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    stacked = map_tree(lambda *leaves: np.stack(leaves), *samples)
    out = encoder({"obs": map_tree(torch.as_tensor, stacked)})[ENCODER_OUT]
    assert out.shape == (4, 8)
    expected = np.stack([spaces.flatten(space, sample) for sample in samples])
    np.testing.assert_allclose(seen[0], expected, atol=1e-6)
    two_dims = map_tree(lambda leaf: torch.as_tensor(leaf)[:, None], stacked)
    torch.testing.assert_close(encoder({"obs": two_dims})[ENCODER_OUT], out[:, None])


def test_images_in_nested_observations_pass_through_convolutions():
    space = spaces.Dict(
        {"camera": IMAGE, "speed": spaces.Box(-1, 1, (2,)), "gear": spaces.Discrete(3)}
    )
    built = catalog(space, conv_filters=[[4, 4, 2], [6, 4, 2]])
    encoder = built.build_encoder()
    assert encoder.net.input_dim == 4 * 5 * 6 + 2 + 3
    sample = gym.vector.utils.batch_space(space, 5).sample()
    obs = map_tree(torch.as_tensor, sample)
    out = encoder({"obs": obs})[ENCODER_OUT]
    assert out.shape == (5, 8)
    out.sum().backward()
    assert all(each.grad is not None for each in encoder.parameters())


def test_discrete_values_outside_of_their_space_are_an_error():
    with pytest.raises(RuntimeError):
        to_vector(spaces.Discrete(3), torch.tensor([3]))


@pytest.mark.parametrize("space", [spaces.Text(3), spaces.Sequence(spaces.Discrete(2))])
def test_observations_without_a_fixed_size_name_the_remedy(space):
    with pytest.raises(ValueError, match="have no default encoder.*connector"):
        catalog(spaces.Dict({"x": space}))


def test_streams_are_encoded_apart_and_joined_again_before_each_layer():
    config = MultiStreamEncoderConfig(
        base_encoder_configs={
            "obs": MLPEncoderConfig(input_dims=[4], hidden_layer_dims=[5]),
            "actions": MLPEncoderConfig(input_dims=[2], hidden_layer_dims=[3]),
        },
        hidden_layer_dims=[6, 7],
        output_layer_dim=2,
    )
    encoder = config.build()
    assert [each.in_features for each in encoder.fusion_layers] == [8, 14]
    assert encoder.output_layer.in_features == 15
    out = encoder({"obs": torch.randn(9, 4), "actions": torch.randn(9, 2)})[ENCODER_OUT]
    assert out.shape == (9, *config.output_dims) == (9, 2)
    with pytest.raises(ValueError, match="`base_encoder_configs` .* is empty"):
        MultiStreamEncoderConfig().build()


def test_head_limits_log_standard_deviations():
    config = MLPHeadConfig(
        input_dims=[3], hidden_layer_dims=[], output_layer_dim=4, clip_log_std=True,
        log_std_clip_param=0.5, output_layer_weights_initializer="ones_",
        output_layer_bias_initializer="zeros_",
    )  # fmt: skip
    out = config.build()(torch.tensor([[1.0, 2.0, 3.0], [-1.0, -2.0, -3.0]]))
    torch.testing.assert_close(out, torch.tensor([[6.0, 6.0, 0.5, 0.5], [-6.0, -6.0, -0.5, -0.5]]))


def test_free_log_standard_deviations_do_not_depend_on_the_input():
    config = FreeLogStdMLPHeadConfig(input_dims=[3], hidden_layer_dims=[], output_layer_dim=4)
    head = config.build()
    with torch.no_grad():
        head.log_std.copy_(torch.tensor([1.0, -1.0]))
    out = head(torch.randn(2, 5, 3))
    assert out.shape == (2, 5, 4)
    torch.testing.assert_close(out[..., 2:], torch.tensor([1.0, -1.0]).expand(2, 5, 2))
    with pytest.raises(ValueError, match="must be even"):
        FreeLogStdMLPHeadConfig(input_dims=[3], hidden_layer_dims=[], output_layer_dim=3).build()


def test_settings_that_leave_no_layer():
    with pytest.raises(ValueError, match="needs a hidden layer"):
        MLPHeadConfig(input_dims=[3], hidden_layer_dims=[]).build()
    with pytest.raises(ValueError, match="must have one dimension"):
        MLPHeadConfig(input_dims=[3, 4], output_layer_dim=1).build()
    with pytest.raises(ValueError, match="`fcnet_hiddens=\\[\\]` leaves no encoder"):
        catalog(VECTOR, fcnet_hiddens=[])


@pytest.mark.parametrize(("kernel", "stride"), [(4, 2), (5, 2), (3, 1), ([4, 6], [2, 3]), (2, 4)])
def test_decoder_multiplies_the_size_by_the_strides(kernel, stride):
    config = CNNTransposeHeadConfig(
        input_dims=[7],
        initial_image_dims=[3, 4, 5],
        cnn_transpose_filter_specifiers=[[6, kernel, stride], [2, 4, 2]],
    )
    image = config.build()(torch.randn(8, 9, 7))
    assert image.shape == (8, 9, *config.output_dims)


def test_transposed_convolution_is_the_adjoint_of_the_convolution():
    encoder = CNNEncoderConfig(
        input_dims=(8, 8, 1), cnn_filter_specifiers=[[3, 4, 2]], cnn_activation=None,
        cnn_use_bias=False, flatten_at_end=False,
    ).build()  # fmt: skip
    decoder = TorchCNNTranspose(input_dims=(4, 4, 3), cnn_transpose_filter_specifiers=[[1, 4, 2]])
    with torch.no_grad():
        decoder.cnn_transpose[0].weight.copy_(encoder.net[0].cnn[1].weight)
        decoder.cnn_transpose[0].bias.zero_()
    image, code = torch.randn(1, 8, 8, 1), torch.randn(1, 4, 4, 3)
    forward = (encoder({"obs": image})[ENCODER_OUT] * code).sum()
    torch.testing.assert_close(forward, (image * decoder(code)).sum(), rtol=1e-4, atol=1e-5)


def test_settings_reach_the_layers():
    config = DefaultModelConfig(
        fcnet_hiddens=[8, 9], fcnet_activation="relu", fcnet_use_layernorm=True,
        fcnet_bias_initializer="zeros_", head_fcnet_hiddens=[7], head_fcnet_activation="silu",
    )  # fmt: skip
    built = PPOCatalog(VECTOR, spaces.Discrete(3), config)
    encoder = built.build_actor_critic_encoder().encoder.net.mlp
    assert [type(each).__name__ for each in encoder] == ["Linear", "LayerNorm", "ReLU"] * 2
    assert [each.out_features for each in encoder if isinstance(each, nn.Linear)] == [8, 9]
    assert not encoder[0].bias.any()
    head = built.build_pi_head().net.mlp
    assert [type(each).__name__ for each in head] == ["Linear", "SiLU", "Linear"]
    assert (head[0].in_features, head[2].out_features) == (9, 3)
    assert built.build_vf_head().net.mlp[2].out_features == 1
    with pytest.raises(NotImplementedError, match="build_actor_critic_encoder"):
        built.build_encoder()


@pytest.mark.parametrize(
    ("space", "size", "name"),
    [
        (spaces.Discrete(3), 3, "TorchCategorical"),
        (spaces.Box(-1, 1, (3,)), 6, "TorchDiagGaussian"),
        (spaces.Box(-1, 1, (3, 2)), 12, "TorchDiagGaussianPartial"),
        (spaces.MultiDiscrete([2, 3]), 5, "TorchMultiCategoricalPartial"),
        (spaces.MultiBinary(3), 6, "TorchMultiCategoricalPartial"),
        (
            spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Tuple([spaces.Box(-1, 1, (2,))])}),
            7,
            "TorchMultiDistributionPartial",
        ),
    ],
)
def test_distribution_that_fits_to_the_actions(space, size, name):
    cls = catalog(VECTOR, space).get_action_dist_cls("torch")
    assert cls.__name__ == name
    assert cls.required_input_dim(space) == size
    actions = cls.from_logits(torch.randn(4, size)).sample()
    first = map_tree(lambda leaf: leaf[0].numpy(), actions)
    sample = space.sample()
    map_tree(
        lambda ours, theirs: np.testing.assert_equal(ours.shape, np.shape(theirs)), first, sample
    )


def test_actions_without_a_distribution_name_the_remedy():
    with pytest.raises(ValueError, match="integers: use a MultiDiscrete"):
        catalog(VECTOR, spaces.Box(0, 5, (2,), np.int64)).get_action_dist_cls()
    with pytest.raises(ValueError, match="`action_dist_cls` in the `setup`"):
        catalog(VECTOR, spaces.Text(3)).get_action_dist_cls()
    with pytest.raises(ValueError, match="`free_log_std=True` is for Gaussian actions"):
        catalog(VECTOR, spaces.Discrete(2), PPOCatalog, free_log_std=True).build_pi_head()


class Squared(TorchModel, Encoder):
    def __init__(self, config):
        TorchModel.__init__(self, config)
        Encoder.__init__(self, config)
        self.scale = nn.Parameter(torch.ones(()))

    def _forward(self, inputs, **kwargs):
        return {ENCODER_OUT: self.scale * inputs["obs"].square()}


class SquaredConfig(ModelConfig):
    @property
    def output_dims(self):
        return (4,)

    def build(self, framework="torch"):
        return Squared(self)


class SquaredCatalog(PPOCatalog):
    """A catalog as users write it."""

    @classmethod
    def _get_encoder_config(cls, observation_space, model_config_dict, action_space=None):
        return SquaredConfig()


def test_custom_encoder_in_a_custom_catalog():
    built = catalog(VECTOR, spaces.Box(-1, 1, (2,)), SquaredCatalog)
    encoder, pi = built.build_actor_critic_encoder(), built.build_pi_head()
    out = encoder({"obs": torch.full((3, 4), 2.0)})[ENCODER_OUT]["actor"]
    assert (out == 4.0).all()
    assert pi(out).shape == (3, 4)
    assert issubclass(built.get_action_dist_cls(), TorchDiagGaussian)
    assert Squared(SquaredConfig()).get_num_parameters() == (1, 0)
