"""Encoders without memory (fully connected, convolutional, nested, actor-critic, multi-stream),
and their settings.

They accept any number of leading dimensions: [B, ...] or [S, L, ...].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from syncline.rl.columns.names import Columns
from syncline.rl.modules.default_model_config import Initializer
from syncline.rl.modules.torch.heads import MLPConfig
from syncline.rl.modules.torch.models import (
    ACTOR,
    CRITIC,
    ENCODER_OUT,
    Encoder,
    ModelConfig,
    TorchModel,
)
from syncline.rl.modules.torch.observations import (
    Path,
    at,
    image_input,
    leaf_spaces,
    to_vector,
    vector_size,
)
from syncline.rl.modules.torch.primitives import (
    Activation,
    TorchCNN,
    convolved_size,
    filter_specifier,
    get_activation,
    initialize,
)
from syncline.rl.value_types import Batch, CheckedSpace, Options, Space, Tree


@dataclass
class MLPEncoderConfig(MLPConfig):
    """Settings of a fully connected encoder."""

    def build(self, framework: str = "torch") -> TorchMLPEncoder:
        """Return the encoder."""
        return TorchMLPEncoder(self)


@dataclass
class CNNEncoderConfig(ModelConfig):
    """Settings of a convolutional encoder of images [H, W, C]."""

    cnn_filter_specifiers: Sequence[Sequence[Any]] = field(
        default_factory=lambda: [[16, [4, 4], 2], [32, [4, 4], 2], [64, [8, 8], 2]]
    )
    """[channels, kernel, stride(, "same" | "valid")] of each convolution."""
    cnn_use_bias: bool = True
    """Use a bias in the convolutions."""
    cnn_activation: Activation = "relu"
    """Activation after each convolution."""
    cnn_use_layernorm: bool = False
    """Add a LayerNorm over the channels before each activation."""
    cnn_kernel_initializer: Initializer = None
    """Initializer of the kernels."""
    cnn_kernel_initializer_config: Options | None = None
    """Arguments of this initializer."""
    cnn_bias_initializer: Initializer = None
    """Initializer of the biases."""
    cnn_bias_initializer_config: Options | None = None
    """Arguments of this initializer."""
    flatten_at_end: bool = True
    """Return vectors instead of images."""

    @property
    def output_dims(self) -> tuple[int, ...]:
        """Size of the vector, or shape of the image."""
        height, width, last = self.input_dims
        size = (int(height), int(width))
        for channels, kernel, stride, padding in map(filter_specifier, self.cnn_filter_specifiers):
            size, last = convolved_size(size, kernel, stride, padding), channels
        dims = (*size, int(last))
        return (int(np.prod(dims)),) if self.flatten_at_end else dims

    def build(self, framework: str = "torch") -> TorchCNNEncoder:
        """Return the encoder."""
        if self.input_dims is None or len(self.input_dims) != 3:
            raise ValueError(
                f"`input_dims={self.input_dims}` of CNNEncoderConfig must be height, width and "
                "channels, such as [64, 64, 3]."
            )
        return TorchCNNEncoder(self)


@dataclass
class NestedEncoderConfig(ModelConfig):
    """Settings of an encoder of nested observations: convolutions for images, vectors for the other
    leaves, and fully connected layers over the concatenation.
    """

    space: CheckedSpace = None
    """Space of the observations."""
    cnn_configs: Mapping[Path, CNNEncoderConfig] = field(default_factory=dict)
    """Encoders of the leaves that are images, by path."""
    mlp_config: MLPEncoderConfig | None = None
    """Settings of the last layers; `input_dims` is derived from the space."""

    @property
    def output_dims(self) -> tuple[int, ...]:
        """Size of the last layer."""
        assert self.mlp_config is not None
        return self.mlp_config.output_dims

    def build(self, framework: str = "torch") -> TorchNestedEncoder:
        """Return the encoder."""
        return TorchNestedEncoder(self)


@dataclass
class ActorCriticEncoderConfig(ModelConfig):
    """Settings of the encoders of policy and value function."""

    base_encoder_config: Any = None
    """Settings of the shared encoder, or of each encoder."""
    shared: bool = True
    """Use one encoder for policy and value function."""
    inference_only: bool = False
    """Omit the encoder of the value function."""

    @property
    def output_dims(self) -> tuple[int, ...]:
        """Output of each encoder."""
        dims: tuple[int, ...] = self.base_encoder_config.output_dims
        return dims

    @property
    def is_stateful(self) -> bool:
        """True if the encoders have memory."""
        return bool(getattr(self.base_encoder_config, "is_stateful", False))

    def build(self, framework: str = "torch") -> TorchActorCriticEncoder:
        """Return the encoders."""
        if self.is_stateful:
            return TorchStatefulActorCriticEncoder(self)
        return TorchActorCriticEncoder(self)


@dataclass
class MultiStreamEncoderConfig(MLPConfig):
    """Settings of one encoder per input, such as observation and action, followed by common
    layers. Every layer also gets the outputs of the encoders.
    """

    hidden_layer_dims: Sequence[int] = (256, 256, 256)
    base_encoder_configs: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the encoder of each input."""

    @property
    def output_dims(self) -> tuple[int, ...]:
        """Size of the last layer."""
        if self.output_layer_dim is None and not self.hidden_layer_dims:
            return (sum(each.output_dims[0] for each in self.base_encoder_configs.values()),)
        return super().output_dims

    def build(self, framework: str = "torch") -> TorchMultiStreamEncoder:
        """Return the encoder."""
        if not self.base_encoder_configs:
            raise ValueError(
                "`base_encoder_configs` of MultiStreamEncoderConfig is empty: pass a dict from "
                "input names to encoder settings."
            )
        return TorchMultiStreamEncoder(self)


class TorchMLPEncoder(TorchModel, Encoder):
    """A fully connected encoder of vectors."""

    def __init__(self, config: MLPEncoderConfig) -> None:
        TorchModel.__init__(self, config)
        self.net = config.layers()

    def _forward(self, inputs: Tree, **kwargs: object) -> Batch:
        return {ENCODER_OUT: self.net(inputs[Columns.OBS])}


class TorchCNNEncoder(TorchModel, Encoder):
    """A convolutional encoder of images [..., H, W, C]; bytes are scaled to [0, 1]."""

    def __init__(self, config: CNNEncoderConfig) -> None:
        TorchModel.__init__(self, config)
        cnn = TorchCNN(
            input_dims=config.input_dims,
            cnn_filter_specifiers=config.cnn_filter_specifiers,
            cnn_activation=config.cnn_activation,
            cnn_use_layernorm=config.cnn_use_layernorm,
            cnn_use_bias=config.cnn_use_bias,
            cnn_kernel_initializer=config.cnn_kernel_initializer,
            cnn_kernel_initializer_config=config.cnn_kernel_initializer_config,
            cnn_bias_initializer=config.cnn_bias_initializer,
            cnn_bias_initializer_config=config.cnn_bias_initializer_config,
        )
        self.net = nn.Sequential(cnn, *([nn.Flatten()] if config.flatten_at_end else []))

    def _forward(self, inputs: Tree, **kwargs: object) -> Batch:
        images = image_input(inputs[Columns.OBS], next(self.parameters()).dtype)
        batch = images.shape[:-3]
        encoded = self.net(images.reshape(-1, *images.shape[-3:]))
        return {ENCODER_OUT: encoded.reshape(*batch, *encoded.shape[1:])}


class TorchNestedEncoder(TorchModel, Encoder):
    """Encodes the images of nested observations, then the concatenation of all parts."""

    def __init__(self, config: NestedEncoderConfig) -> None:
        TorchModel.__init__(self, config)
        self._images = list(config.cnn_configs)
        self._vectors = {
            path: space
            for path, space in leaf_spaces(config.space).items()
            if path not in config.cnn_configs
        }
        self.cnns = nn.ModuleList(each.build() for each in config.cnn_configs.values())
        size = sum(map(vector_size, self._vectors.values()))
        size += sum(each.output_dims[0] for each in config.cnn_configs.values())
        assert config.mlp_config is not None
        config.mlp_config.input_dims = (size,)
        self.net = config.mlp_config.layers()

    def _forward(self, inputs: Tree, **kwargs: object) -> Batch:
        obs = inputs[Columns.OBS]
        parts = [to_vector(space, at(obs, path)) for path, space in self._vectors.items()]
        parts += [
            cnn({Columns.OBS: at(obs, path)})[ENCODER_OUT]
            for path, cnn in zip(self._images, self.cnns, strict=True)
        ]
        return {ENCODER_OUT: self.net(parts[0] if len(parts) == 1 else torch.cat(parts, -1))}


class TorchActorCriticEncoder(TorchModel, Encoder):
    """One shared encoder for policy and value function, or two separate ones."""

    def __init__(self, config: ActorCriticEncoderConfig) -> None:
        TorchModel.__init__(self, config)
        build = config.base_encoder_config.build
        if config.shared:
            self.encoder = build(framework="torch")
        else:
            self.actor_encoder = build(framework="torch")
            if not config.inference_only:
                self.critic_encoder = build(framework="torch")

    def _forward(self, inputs: Tree, **kwargs: object) -> Batch:
        if self.config.shared:
            actor = critic = self.encoder(inputs, **kwargs)[ENCODER_OUT]
        else:
            actor = self.actor_encoder(inputs, **kwargs)[ENCODER_OUT]
            if not hasattr(self, "critic_encoder"):
                return {ENCODER_OUT: {ACTOR: actor}}
            critic = self.critic_encoder(inputs, **kwargs)[ENCODER_OUT]
        return {ENCODER_OUT: {ACTOR: actor, CRITIC: critic}}

    def encode_actor(self, inputs: Tree) -> Batch:
        """Return only the actor's output: {ENCODER_OUT: ...}, and "state_out" with memory."""
        encoder = self.encoder if self.config.shared else self.actor_encoder
        encoded: Batch = encoder(inputs)
        return encoded

    def encode_critic(self, inputs: Tree) -> Tree:
        """Return only the critic's output."""
        encoder = self.encoder if self.config.shared else self.critic_encoder
        return encoder(inputs)[ENCODER_OUT]


class TorchStatefulActorCriticEncoder(TorchActorCriticEncoder):
    """The same for encoders with memory; two encoders have states {"actor": ..., "critic": ...}."""

    def get_initial_state(self) -> Tree:
        """Return the state at the start of an episode."""
        if self.config.shared:
            return self.encoder.get_initial_state()
        return {
            ACTOR: self.actor_encoder.get_initial_state(),
            CRITIC: self.critic_encoder.get_initial_state(),
        }

    def _forward(self, inputs: Tree, **kwargs: object) -> Batch:
        if self.config.shared:
            out = self.encoder(inputs, **kwargs)
            encoded = out[ENCODER_OUT]
            return {
                ENCODER_OUT: {ACTOR: encoded, CRITIC: encoded},
                Columns.STATE_OUT: out[Columns.STATE_OUT],
            }
        actor = self.actor_encoder(_with_state_of(inputs, ACTOR), **kwargs)
        critic = self.critic_encoder(_with_state_of(inputs, CRITIC), **kwargs)
        return {
            ENCODER_OUT: {ACTOR: actor[ENCODER_OUT], CRITIC: critic[ENCODER_OUT]},
            Columns.STATE_OUT: {ACTOR: actor[Columns.STATE_OUT], CRITIC: critic[Columns.STATE_OUT]},
        }

    def encode_actor(self, inputs: Tree) -> Batch:
        """Return the actor's output and both states, because the critic's state must be updated."""
        out = self._forward(inputs)
        return {**out, ENCODER_OUT: out[ENCODER_OUT][ACTOR]}

    def encode_critic(self, inputs: Tree) -> Tree:
        """Return only the critic's output."""
        if self.config.shared:
            return self.encoder(inputs)[ENCODER_OUT]
        return self.critic_encoder(_with_state_of(inputs, CRITIC))[ENCODER_OUT]


def _with_state_of(inputs: Tree, part: str) -> Batch:
    return {**inputs, Columns.STATE_IN: inputs[Columns.STATE_IN][part]}


class TorchMultiStreamEncoder(TorchModel, Encoder):
    """Encodes each input separately and concatenates the results."""

    def __init__(self, config: MultiStreamEncoderConfig) -> None:
        TorchModel.__init__(self, config)
        self.base_encoders = nn.ModuleDict(
            {name: each.build() for name, each in sorted(config.base_encoder_configs.items())}
        )
        joined = sum(each.output_dims[0] for each in config.base_encoder_configs.values())
        hidden = list(config.hidden_layer_dims)
        sizes = [joined, *(joined + each for each in hidden)]
        self.fusion_layers = nn.ModuleList(
            nn.Linear(size, out, bias=config.hidden_layer_use_bias)
            for size, out in zip(sizes, hidden, strict=False)
        )
        for layer in self.fusion_layers:
            _initialize_linear(layer, config, "hidden")
        self.output_layer = None
        if config.output_layer_dim is not None:
            self.output_layer = nn.Linear(
                sizes[-1], config.output_layer_dim, bias=config.output_layer_use_bias
            )
            _initialize_linear(self.output_layer, config, "output")
        self.hidden_activation = (get_activation(config.hidden_layer_activation) or nn.Identity)()
        self.output_activation = (get_activation(config.output_layer_activation) or nn.Identity)()

    def _forward(self, inputs: Tree, **kwargs: object) -> Batch:
        embeddings = torch.cat(
            [
                encoder({Columns.OBS: inputs[name]})[ENCODER_OUT]
                for name, encoder in self.base_encoders.items()
            ],
            dim=-1,
        )
        out = embeddings
        for i, layer in enumerate(self.fusion_layers):
            joined = torch.cat([out, embeddings], dim=-1) if i else embeddings
            out = self.hidden_activation(layer(joined))
        if self.output_layer is not None:
            joined = torch.cat([out, embeddings], dim=-1) if len(self.fusion_layers) else out
            out = self.output_activation(self.output_layer(joined))
        return {ENCODER_OUT: out}


def _initialize_linear(layer: Any, config: MultiStreamEncoderConfig, kind: str) -> None:
    for part in ("weights", "bias"):
        name = f"{kind}_layer_{part}_initializer"
        initialize(
            layer.weight if part == "weights" else layer.bias,
            getattr(config, name),
            getattr(config, f"{name}_config"),
        )


def default_filters(shape: Sequence[int]) -> list[list[Any]]:
    """Return convolutions for an image size: RLlib's for the sizes that it defines.

    Other images are halved until at most 6 pixels are left, and the channels doubled each time.
    """
    size = (int(shape[0]), int(shape[1]))
    known: dict[tuple[int, int], list[list[Any]]] = {
        (96, 96): [[16, [8, 8], 4], [32, [4, 4], 2], [256, [11, 11], 2]],
        (84, 84): [[16, [8, 8], 4], [32, [4, 4], 2], [256, [11, 11], 1]],
        (64, 64): [[16, [4, 4], 2], [32, [4, 4], 2], [64, [4, 4], 2], [128, [4, 4], 2]],
        (42, 42): [[16, [4, 4], 2], [32, [4, 4], 2], [256, [11, 11], 1]],
        (10, 10): [[16, [5, 5], 2], [32, [5, 5], 2]],
    }
    if size in known:
        return known[size]
    filters: list[list[Any]] = []
    channels = 16
    while max(size) > 6 or not filters:
        filters.append([channels, [4, 4], 2])
        size = convolved_size(size, (4, 4), (2, 2), "same")
        channels = min(2 * channels, 256)
    return filters


def plain_vector(space: Space) -> bool:
    """Return True for Box spaces with one dimension, which need no conversion."""
    return isinstance(space, gym.spaces.Box) and len(space.shape) == 1
