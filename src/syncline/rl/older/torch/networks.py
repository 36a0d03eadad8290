"""Networks from older releases (fully connected, convolutional, recurrent), and their layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import leaves, map_tree
from syncline.rl.modules.torch.attention import AttentionEncoderConfig
from syncline.rl.modules.torch.encoders import MLPEncoderConfig, default_filters
from syncline.rl.modules.torch.memory import RecurrentEncoderConfig
from syncline.rl.modules.torch.models import ENCODER_OUT
from syncline.rl.modules.torch.primitives import get_activation
from syncline.rl.older.torch.model_v2 import OBS, OBS_FLAT, RecurrentNetwork, TorchModelV2
from syncline.rl.value_types import Batch, CheckedSpace, OptionMapping, Space, Tree


def normc_initializer(std: float = 1.0) -> Callable[[torch.Tensor], None]:
    """Return an initializer for normal weights with columns of norm `std`."""

    def initialize(tensor: torch.Tensor) -> None:
        tensor.data.normal_(0, 1)
        tensor.data *= std / torch.sqrt(tensor.data.pow(2).sum(1, keepdim=True))

    return initialize


class SlimFC(nn.Module):
    """A fully connected layer with an activation.

    Args:
        in_size: Inputs.
        out_size: Outputs.
        initializer: Initializes the weights.
        activation_fn: Name or class of the activation, or None.
        use_bias: Add a bias.
        bias_init: Initial value of the bias.
    """

    def __init__(
        self,
        in_size: int,
        out_size: int,
        initializer: Any = None,
        activation_fn: object = None,
        use_bias: bool = True,
        bias_init: float = 0.0,
    ) -> None:
        super().__init__()
        linear = nn.Linear(in_size, out_size, bias=use_bias)
        (initializer or nn.init.xavier_uniform_)(linear.weight)
        if use_bias:
            nn.init.constant_(linear.bias, bias_init)
        self._model = nn.Sequential(linear, *_activation(activation_fn))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs."""
        outputs: torch.Tensor = self._model(x)
        return outputs


class SlimConv2d(nn.Module):
    """A convolution with padding and an activation; inputs are [B, C, H, W].

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        kernel: Size of the kernel.
        stride: Stride.
        padding: Left, right, top and bottom padding; an int for all; None for no padding.
        initializer: "default", "xavier_uniform", or a function of the weights.
        activation_fn: Name or class of the activation; "default" for ReLU, None for none.
        bias_init: First value of the bias.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: Any,
        stride: Any,
        padding: Any = None,
        initializer: object = "default",
        activation_fn: object = "default",
        bias_init: float = 0.0,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.ZeroPad2d(padding)] if padding else []
        convolution = nn.Conv2d(in_channels, out_channels, kernel, stride)
        own = initializer if callable(initializer) else nn.init.xavier_uniform_
        own(convolution.weight)
        assert convolution.bias is not None
        nn.init.constant_(convolution.bias, bias_init)
        layers += [
            convolution,
            *_activation("relu" if activation_fn == "default" else activation_fn),
        ]
        self._model = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs."""
        outputs: torch.Tensor = self._model(x)
        return outputs


class AppendBiasLayer(nn.Module):
    """Appends free parameters, such as log standard deviations, to its inputs."""

    def __init__(self, num_bias_vars: int) -> None:
        super().__init__()
        self.log_std = nn.Parameter(torch.zeros(num_bias_vars))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Concatenate inputs [B, n] and the parameters."""
        return torch.cat([x, self.log_std.expand(len(x), -1)], dim=1)


def same_padding(in_size: Sequence[int], filter_size: Any, stride_size: Any) -> tuple[Any, Any]:
    """Return padding (left, right, top, bottom) and output size of a "same" convolution."""
    kernel = [filter_size] * 2 if isinstance(filter_size, int) else list(filter_size)
    stride = [stride_size] * 2 if isinstance(stride_size, int) else list(stride_size)
    size = [-(-length // step) for length, step in zip(in_size, stride, strict=True)]
    missing = [
        max((n - 1) * step + k - length, 0)
        for n, step, k, length in zip(size, stride, kernel, in_size, strict=True)
    ]
    top, left = (each // 2 for each in missing)
    return (left, missing[1] - left, top, missing[0] - top), tuple(size)


def _activation(given: Any) -> list[nn.Module]:
    if given in (None, "linear"):
        return []
    if isinstance(given, str):
        found = get_activation(given)
        return [] if found is None else [found()]
    return [given()]


class FullyConnectedNetwork(TorchModelV2, nn.Module):
    """Fully connected layers for logits and values.

    Options: `fcnet_hiddens`, `fcnet_activation`, `post_fcnet_hiddens`, `post_fcnet_activation`,
    `vf_share_layers`, `free_log_std`, `no_final_linear`.
    """

    def __init__(
        self,
        obs_space: CheckedSpace,
        action_space: CheckedSpace,
        num_outputs: int | None,
        model_config: Mapping[str, object],
        name: str,
    ) -> None:
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self._share = bool(model_config.get("vf_share_layers"))
        size = int(np.prod(obs_space.shape))
        self._hidden_layers, width = _dense(size, model_config)
        self._append: AppendBiasLayer | None = None
        outputs = num_outputs
        if model_config.get("free_log_std") and num_outputs:
            outputs = num_outputs // 2
            self._append = AppendBiasLayer(outputs)
        self._logits = SlimFC(width, outputs, normc_initializer(0.01)) if outputs else nn.Identity()
        self.num_outputs = num_outputs or width
        self._value_layers = None if self._share else _dense(size, model_config)[0]
        self._value_branch = SlimFC(width, 1, normc_initializer(0.01))
        self._features: Tree = None
        self._last_flat_in: Tree = None

    def forward(
        self, input_dict: Batch, state: list[Tree], seq_lens: Tree
    ) -> tuple[torch.Tensor, list[Tree]]:
        """Return the logits."""
        self._last_flat_in = input_dict[OBS_FLAT].float()
        self._features = self._hidden_layers(self._last_flat_in)
        logits = self._logits(self._features)
        return logits if self._append is None else self._append(logits), state

    def value_function(self) -> torch.Tensor:
        """Return the values of the last observations."""
        features = (
            self._features if self._value_layers is None else self._value_layers(self._last_flat_in)
        )
        values: torch.Tensor = self._value_branch(features).squeeze(1)
        return values


def _dense(size: int, config: OptionMapping) -> tuple[nn.Sequential, int]:
    layers: list[nn.Module] = []
    for sizes, activation in (
        (config.get("fcnet_hiddens", [256, 256]), config.get("fcnet_activation", "tanh")),
        (config.get("post_fcnet_hiddens") or [], config.get("post_fcnet_activation", "relu")),
    ):
        for width in sizes:
            layers.append(SlimFC(size, width, normc_initializer(1.0), activation))
            size = width
    return nn.Sequential(*layers), size


class VisionNetwork(TorchModelV2, nn.Module):
    """Convolutions for logits and values; images are [H, W, C].

    Options: `conv_filters` [[channels, kernel, stride], …], `conv_activation`, and the options of
    `FullyConnectedNetwork` for the layers after the convolutions.
    """

    def __init__(
        self,
        obs_space: CheckedSpace,
        action_space: CheckedSpace,
        num_outputs: int | None,
        model_config: OptionMapping,
        name: str,
    ) -> None:
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        filters = model_config.get("conv_filters") or default_filters(obs_space.shape)
        activation = model_config.get("conv_activation", "relu")
        *size, channels = obs_space.shape
        layers: list[nn.Module] = []
        for out_channels, kernel, stride, *_ in filters:
            padding, size = same_padding(size, kernel, stride)
            layers.append(
                SlimConv2d(channels, out_channels, kernel, stride, padding, None, activation)
            )
            channels = out_channels
        self._convs = nn.Sequential(*layers, nn.Flatten())
        flat = int(channels * np.prod(size))
        hidden = {
            "fcnet_hiddens": [],
            "post_fcnet_hiddens": model_config.get("post_fcnet_hiddens"),
            "post_fcnet_activation": model_config.get("post_fcnet_activation", "relu"),
        }
        self._post, width = _dense(flat, hidden)
        self._logits = (
            SlimFC(width, num_outputs, normc_initializer(0.01)) if num_outputs else nn.Identity()
        )
        self.num_outputs = num_outputs or width
        self._value_branch = SlimFC(width, 1, normc_initializer(0.01))
        self._features: Tree = None

    def forward(
        self, input_dict: Batch, state: list[Tree], seq_lens: Tree
    ) -> tuple[torch.Tensor, list[Tree]]:
        """Return the logits."""
        images = input_dict[OBS].float().permute(0, 3, 1, 2)
        self._features = self._post(self._convs(images))
        return self._logits(self._features), state

    def value_function(self) -> torch.Tensor:
        """Return the values of the last observations."""
        values: torch.Tensor = self._value_branch(self._features).squeeze(1)
        return values


class _MemoryNetwork(RecurrentNetwork, nn.Module):
    """An encoder with memory, and heads for logits and values."""

    def __init__(
        self,
        obs_space: Space,
        action_space: CheckedSpace,
        num_outputs: int | None,
        model_config: Mapping[str, object],
        name: str,
        encoder: Any,
    ) -> None:
        RecurrentNetwork.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self._encoder = encoder.build(framework="torch")
        width = int(encoder.output_dims[0])
        self._logits = SlimFC(width, num_outputs) if num_outputs else nn.Identity()
        self.num_outputs = num_outputs or width
        self._value_branch = SlimFC(width, 1)
        self._features: Tree = None

    def get_initial_state(self) -> list[Tree]:
        """Return the arrays of the encoder's state."""
        return [torch.as_tensor(np.asarray(leaf)) for leaf in leaves(self._initial())]

    def _initial(self) -> Any:
        return self._encoder.get_initial_state()

    def forward_rnn(
        self, inputs: torch.Tensor, state: list[Tree], seq_lens: Tree
    ) -> tuple[torch.Tensor, list[Tree]]:
        """Return the logits [S, L, num_outputs] and the next states."""
        parts = iter(state)
        nested = map_tree(lambda _: next(parts), self._initial())
        out = self._encoder({Columns.OBS: inputs, Columns.STATE_IN: nested})
        self._features = out[ENCODER_OUT].reshape(-1, out[ENCODER_OUT].shape[-1])
        return self._logits(out[ENCODER_OUT]), leaves(out[Columns.STATE_OUT])

    def value_function(self) -> torch.Tensor:
        """Return the values of the last observations."""
        values: torch.Tensor = self._value_branch(self._features).squeeze(1)
        return values


def _tokenizer(obs_space: CheckedSpace, config: OptionMapping) -> MLPEncoderConfig:
    hidden = list(config.get("fcnet_hiddens") or [256, 256])
    return MLPEncoderConfig(
        input_dims=(int(np.prod(obs_space.shape)),),
        hidden_layer_dims=hidden[:-1],
        hidden_layer_activation=config.get("fcnet_activation", "tanh"),
        output_layer_dim=hidden[-1],
        output_layer_activation=config.get("fcnet_activation", "tanh"),
    )


class LSTMWrapper(_MemoryNetwork):
    """Fully connected layers and an LSTM; options `fcnet_*` and `lstm_cell_size`."""

    def __init__(
        self,
        obs_space: Space,
        action_space: CheckedSpace,
        num_outputs: int | None,
        model_config: OptionMapping,
        name: str,
    ) -> None:
        tokenizer = _tokenizer(obs_space, model_config)
        encoder = RecurrentEncoderConfig(
            input_dims=tokenizer.input_dims,
            tokenizer_config=tokenizer,
            recurrent_layer_type="lstm",
            hidden_dim=model_config.get("lstm_cell_size", 256),
        )
        super().__init__(obs_space, action_space, num_outputs, model_config, name, encoder)


class GTrXLNet(_MemoryNetwork):
    """A gated transformer with memory (Parisotto et al. 2019, https://arxiv.org/abs/1910.06764).

    Args:
        obs_space: Space of the observations.
        action_space: Space of the actions.
        num_outputs: Number of outputs per observation.
        model_config: Options; `fcnet_*` apply to the layers before the transformer.
        name: Name of the network.
        num_transformer_units: Number of stacked units.
        attention_dim: Input and output size of each unit.
        num_heads: Number of attention heads per unit.
        memory_inference: Number of previous steps that acting attends to.
        memory_training: Number of previous steps that training attends to.
        head_dim: Size of each head.
        position_wise_mlp_dim: Size of the hidden layer of each unit.
        init_gru_gate_bias: Initial bias of the gates.
    """

    def __init__(
        self,
        obs_space: Space,
        action_space: CheckedSpace,
        num_outputs: int | None,
        model_config: Mapping[str, object],
        name: str,
        *,
        num_transformer_units: int = 1,
        attention_dim: int = 64,
        num_heads: int = 2,
        memory_inference: int = 50,
        memory_training: int = 50,
        head_dim: int = 32,
        position_wise_mlp_dim: int = 32,
        init_gru_gate_bias: float = 2.0,
    ) -> None:
        tokenizer = _tokenizer(obs_space, model_config)
        encoder = AttentionEncoderConfig(
            input_dims=tokenizer.input_dims,
            tokenizer_config=tokenizer,
            num_units=num_transformer_units,
            dim=attention_dim,
            num_heads=num_heads,
            head_dim=head_dim,
            memory=memory_inference,
            memory_training=memory_training,
            mlp_dim=position_wise_mlp_dim,
            init_gate_bias=init_gru_gate_bias,
        )
        super().__init__(obs_space, action_space, num_outputs, model_config, name, encoder)


class AttentionWrapper(GTrXLNet):
    """`GTrXLNet` with the options `attention_*` of the model configuration."""

    def __init__(
        self,
        obs_space: CheckedSpace,
        action_space: CheckedSpace,
        num_outputs: int | None,
        model_config: OptionMapping,
        name: str,
    ) -> None:
        given = model_config
        super().__init__(
            obs_space,
            action_space,
            num_outputs,
            model_config,
            name,
            num_transformer_units=given.get("attention_num_transformer_units", 1),
            attention_dim=given.get("attention_dim", 64),
            num_heads=given.get("attention_num_heads", 1),
            memory_inference=given.get("attention_memory_inference", 50),
            memory_training=given.get("attention_memory_training", 50),
            head_dim=given.get("attention_head_dim", 32),
            position_wise_mlp_dim=given.get("attention_position_wise_mlp_dim", 32),
            init_gru_gate_bias=given.get("attention_init_gru_gate_bias", 2.0),
        )
