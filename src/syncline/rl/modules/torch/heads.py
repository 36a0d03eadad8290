"""Heads, which map encoder outputs to action parameters, values or images, and their settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from syncline.rl.modules.default_model_config import Initializer
from syncline.rl.modules.torch.models import ModelConfig, TorchModel
from syncline.rl.modules.torch.primitives import (
    Activation,
    TorchCNNTranspose,
    TorchMLP,
    get_activation,
    initialize,
)
from syncline.rl.value_types import Options


@dataclass
class MLPConfig(ModelConfig):
    """Settings of fully connected layers: hidden layers, an output layer, or both."""

    hidden_layer_dims: Sequence[int] = (256, 256)
    """Sizes of the hidden layers."""
    hidden_layer_use_bias: bool = True
    """Use a bias in the hidden layers."""
    hidden_layer_activation: Activation = "relu"
    """Activation after each hidden layer."""
    hidden_layer_use_layernorm: bool = False
    """Add a LayerNorm between each hidden layer and its activation."""
    hidden_layer_weights_initializer: Initializer = None
    """Initializer of the weights of hidden layers."""
    hidden_layer_weights_initializer_config: Options | None = None
    """Arguments of this initializer."""
    hidden_layer_bias_initializer: Initializer = None
    """Initializer of the biases of hidden layers."""
    hidden_layer_bias_initializer_config: Options | None = None
    """Arguments of this initializer."""
    output_layer_dim: int | None = None
    """Size of the output layer; None for no output layer."""
    output_layer_use_layernorm: bool = False
    """Add a LayerNorm after the output layer."""
    output_layer_use_bias: bool = True
    """Use a bias in the output layer."""
    output_layer_activation: Activation = "linear"
    """Activation after the output layer."""
    output_layer_weights_initializer: Initializer = None
    """Initializer of the weights of the output layer."""
    output_layer_weights_initializer_config: Options | None = None
    """Arguments of this initializer."""
    output_layer_bias_initializer: Initializer = None
    """Initializer of the bias of the output layer."""
    output_layer_bias_initializer_config: Options | None = None
    """Arguments of this initializer."""
    clip_log_std: bool = False
    """Clip the second half of the outputs, the log standard deviations of a Gaussian."""
    log_std_clip_param: float = 20.0
    """Maximum absolute value of the log standard deviations."""

    @property
    def output_dims(self) -> tuple[int, ...]:
        """Size of the last layer."""
        if self.output_layer_dim is None and not self.hidden_layer_dims:
            raise ValueError(
                "`output_layer_dim=None` needs a hidden layer: set `hidden_layer_dims=[32]`."
            )
        last = self.output_layer_dim or self.hidden_layer_dims[-1]
        return (int(last),)

    def _check(self) -> None:
        if self.input_dims is None or len(self.input_dims) != 1:
            raise ValueError(
                f"`input_dims={self.input_dims}` of {type(self).__name__} must have one dimension, "
                "such as [32]."
            )
        get_activation(self.hidden_layer_activation)
        get_activation(self.output_layer_activation)
        assert self.output_dims

    def layers(self, output_dim: int | None = None) -> TorchMLP:
        """Return the layers; `output_dim` replaces the size of the output layer."""
        self._check()
        return TorchMLP(
            input_dim=int(self.input_dims[0]),
            hidden_layer_dims=self.hidden_layer_dims,
            hidden_layer_activation=self.hidden_layer_activation,
            hidden_layer_use_layernorm=self.hidden_layer_use_layernorm,
            hidden_layer_use_bias=self.hidden_layer_use_bias,
            hidden_layer_weights_initializer=self.hidden_layer_weights_initializer,
            hidden_layer_weights_initializer_config=self.hidden_layer_weights_initializer_config,
            hidden_layer_bias_initializer=self.hidden_layer_bias_initializer,
            hidden_layer_bias_initializer_config=self.hidden_layer_bias_initializer_config,
            output_dim=self.output_layer_dim if output_dim is None else output_dim,
            output_activation=self.output_layer_activation,
            output_use_bias=self.output_layer_use_bias,
            output_layer_use_layernorm=self.output_layer_use_layernorm,
            output_weights_initializer=self.output_layer_weights_initializer,
            output_weights_initializer_config=self.output_layer_weights_initializer_config,
            output_bias_initializer=self.output_layer_bias_initializer,
            output_bias_initializer_config=self.output_layer_bias_initializer_config,
        )


@dataclass
class MLPHeadConfig(MLPConfig):
    """Settings of a fully connected head."""

    def build(self, framework: str = "torch") -> TorchMLPHead:
        """Return the head."""
        return TorchMLPHead(self)


@dataclass
class FreeLogStdMLPHeadConfig(MLPConfig):
    """Settings of a head whose second half of outputs consists of input-independent parameters."""

    def build(self, framework: str = "torch") -> TorchFreeLogStdMLPHead:
        """Return the head."""
        if self.output_dims[0] % 2:
            raise ValueError(
                f"FreeLogStdMLPHeadConfig has {self.output_dims[0]} outputs: half of them are log "
                "standard deviations, so their number must be even."
            )
        return TorchFreeLogStdMLPHead(self)


@dataclass
class CNNTransposeHeadConfig(ModelConfig):
    """Settings of a decoder from vectors to images."""

    initial_image_dims: Sequence[int] = (4, 4, 96)
    """Shape of the initial image, computed by a fully connected layer."""
    initial_dense_weights_initializer: Initializer = None
    """Initializer of the weights of that layer."""
    initial_dense_weights_initializer_config: Options | None = None
    """Arguments of this initializer."""
    initial_dense_bias_initializer: Initializer = None
    """Initializer of the bias of that layer."""
    initial_dense_bias_initializer_config: Options | None = None
    """Arguments of this initializer."""
    cnn_transpose_filter_specifiers: Sequence[Sequence[Any]] = field(
        default_factory=lambda: [[48, [4, 4], 2], [24, [4, 4], 2], [3, [4, 4], 2]]
    )
    """[channels, kernel, stride] of each transposed convolution."""
    cnn_transpose_use_bias: bool = True
    """Use a bias in the transposed convolutions; the last one always has a bias."""
    cnn_transpose_activation: Activation = "relu"
    """Activation after all transposed convolutions except the last."""
    cnn_transpose_use_layernorm: bool = False
    """Add a LayerNorm before each of these activations."""
    cnn_transpose_kernel_initializer: Initializer = None
    """Initializer of the kernels."""
    cnn_transpose_kernel_initializer_config: Options | None = None
    """Arguments of this initializer."""
    cnn_transpose_bias_initializer: Initializer = None
    """Initializer of the biases."""
    cnn_transpose_bias_initializer_config: Options | None = None
    """Arguments of this initializer."""

    @property
    def output_dims(self) -> tuple[int, ...]:
        """Height, width and channels of the image."""
        height, width, channels = self.initial_image_dims
        for out_channels, _, stride in self.cnn_transpose_filter_specifiers:
            down, across = (stride, stride) if isinstance(stride, int) else stride
            height, width, channels = height * down, width * across, out_channels
        return (height, width, channels)

    def build(self, framework: str = "torch") -> TorchCNNTransposeHead:
        """Return the decoder."""
        if self.input_dims is None or len(self.input_dims) != 1:
            raise ValueError(
                f"`input_dims={self.input_dims}` of CNNTransposeHeadConfig must have one "
                "dimension, such as [128]."
            )
        return TorchCNNTransposeHead(self)


class TorchMLPHead(TorchModel):
    """A fully connected head."""

    def __init__(self, config: MLPHeadConfig) -> None:
        super().__init__(config)
        self.net = config.layers()
        self.clip_log_std = config.clip_log_std and np.isfinite(config.log_std_clip_param)
        self.log_std_clip_param = float(config.log_std_clip_param)

    def _forward(self, inputs: torch.Tensor, **kwargs: object) -> torch.Tensor:
        outputs: torch.Tensor = self.net(inputs)
        if not self.clip_log_std:
            return outputs
        means, log_stds = outputs.chunk(2, dim=-1)
        limit = self.log_std_clip_param
        return torch.cat([means, log_stds.clamp(-limit, limit)], dim=-1)


class TorchFreeLogStdMLPHead(TorchModel):
    """A fully connected head for means, with log standard deviations as parameters."""

    def __init__(self, config: FreeLogStdMLPHeadConfig) -> None:
        super().__init__(config)
        half = config.output_dims[0] // 2
        self.net = config.layers(output_dim=half)
        self.log_std = nn.Parameter(torch.zeros(half))
        self.clip_log_std = config.clip_log_std and np.isfinite(config.log_std_clip_param)
        self.log_std_clip_param = float(config.log_std_clip_param)

    def _forward(self, inputs: torch.Tensor, **kwargs: object) -> torch.Tensor:
        means: torch.Tensor = self.net(inputs)
        log_std: torch.Tensor = self.log_std
        if self.clip_log_std:
            log_std = log_std.clamp(-self.log_std_clip_param, self.log_std_clip_param)
        return torch.cat([means, log_std.to(means.dtype).expand_as(means)], dim=-1)


class TorchCNNTransposeHead(TorchModel):
    """A decoder from [..., D] to images [..., H, W, C], centered at 0.5."""

    def __init__(self, config: CNNTransposeHeadConfig) -> None:
        super().__init__(config)
        size = int(np.prod(config.initial_image_dims))
        self.initial_dense = nn.Linear(int(config.input_dims[0]), size)
        initialize(
            self.initial_dense.weight,
            config.initial_dense_weights_initializer,
            config.initial_dense_weights_initializer_config,
        )
        initialize(
            self.initial_dense.bias,
            config.initial_dense_bias_initializer,
            config.initial_dense_bias_initializer_config,
        )
        self.cnn_transpose_net = TorchCNNTranspose(
            input_dims=config.initial_image_dims,
            cnn_transpose_filter_specifiers=config.cnn_transpose_filter_specifiers,
            cnn_transpose_activation=config.cnn_transpose_activation,
            cnn_transpose_use_layernorm=config.cnn_transpose_use_layernorm,
            cnn_transpose_use_bias=config.cnn_transpose_use_bias,
            cnn_transpose_kernel_initializer=config.cnn_transpose_kernel_initializer,
            cnn_transpose_kernel_initializer_config=config.cnn_transpose_kernel_initializer_config,
            cnn_transpose_bias_initializer=config.cnn_transpose_bias_initializer,
            cnn_transpose_bias_initializer_config=config.cnn_transpose_bias_initializer_config,
        )

    def _forward(self, inputs: torch.Tensor, **kwargs: object) -> torch.Tensor:
        dense: torch.Tensor = self.initial_dense(inputs)
        images = dense.reshape(-1, *self.config.initial_image_dims)
        decoded: torch.Tensor = self.cnn_transpose_net(images)
        return decoded.reshape(*inputs.shape[:-1], *decoded.shape[1:]) + 0.5
