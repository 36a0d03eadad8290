"""Layers: fully connected stacks, convolutions, transposed convolutions, and their options.

Parameters have RLlib's names, so that weights can be exchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.nn import functional

from syncline.rl.modules.default_model_config import Initializer
from syncline.rl.modules.torch.models import in_dtype_of
from syncline.rl.value_types import OptionMapping, Tree
from syncline.suggestions import did_you_mean

Activation: TypeAlias = str | Callable[[], nn.Module] | None
"""A name in `torch.nn`, or a class or function that makes the module."""
Size: TypeAlias = tuple[int, int]

_LAYER_NORM_EPS = 1e-3
_ACTIVATIONS: dict[str, type[nn.Module] | None] = {
    "linear": None,
    "none": None,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "swish": nn.SiLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "softmax": nn.Softmax,
}


def get_activation(name: object) -> Any:
    """Return the class of an activation; None for the identity.

    Raises:
        ValueError: The name is neither known nor a class of `torch.nn`.
    """
    if name is None or callable(name):
        return name
    if str(name).lower() in _ACTIVATIONS:
        return _ACTIVATIONS[str(name).lower()]
    found = getattr(nn, str(name), None)
    if not isinstance(found, type):
        raise ValueError(
            f"Unknown activation {name!r}.{did_you_mean(str(name), _ACTIVATIONS)} Use one of "
            f"{', '.join(_ACTIVATIONS)}, or a class of torch.nn."
        )
    return found


def initialize(
    tensor: torch.Tensor | None, initializer: Initializer, arguments: OptionMapping | None
) -> None:
    """Initialize a weight in place; None keeps torch's default.

    Raises:
        ValueError: The name is not an in-place function of `torch.nn.init`.
    """
    if initializer is None or tensor is None:
        return
    function: Any = initializer
    if isinstance(initializer, str):
        function = getattr(nn.init, initializer, None)
        if function is None or not initializer.endswith("_"):
            known = [name for name in dir(nn.init) if name.endswith("_") and name[0] != "_"]
            raise ValueError(
                f"torch.nn.init has no in-place initializer {initializer!r}."
                f"{did_you_mean(initializer, known)}"
            )
    with torch.no_grad():
        function(tensor, **(arguments or {}))


class TorchMLP(nn.Module):
    """Fully connected layers: equal hidden layers, and an output layer if `output_dim` is given."""

    def __init__(
        self,
        *,
        input_dim: int,
        hidden_layer_dims: Sequence[int],
        hidden_layer_activation: object = "relu",
        hidden_layer_use_bias: bool = True,
        hidden_layer_use_layernorm: bool = False,
        hidden_layer_weights_initializer: Initializer = None,
        hidden_layer_weights_initializer_config: Mapping[str, object] | None = None,
        hidden_layer_bias_initializer: Initializer = None,
        hidden_layer_bias_initializer_config: Mapping[str, object] | None = None,
        output_dim: int | None = None,
        output_use_bias: bool = True,
        output_layer_use_layernorm: bool = False,
        output_activation: object = "linear",
        output_weights_initializer: Initializer = None,
        output_weights_initializer_config: Mapping[str, object] | None = None,
        output_bias_initializer: Initializer = None,
        output_bias_initializer_config: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__()
        self.input_dim = input_dim
        layers: list[nn.Module] = []
        size = input_dim
        activation = get_activation(hidden_layer_activation)
        for hidden in hidden_layer_dims:
            layer = nn.Linear(size, hidden, bias=hidden_layer_use_bias)
            initialize(
                layer.weight,
                hidden_layer_weights_initializer,
                hidden_layer_weights_initializer_config,
            )
            initialize(
                layer.bias, hidden_layer_bias_initializer, hidden_layer_bias_initializer_config
            )
            layers += _with_norm_and_activation(layer, hidden_layer_use_layernorm, activation)
            size = hidden
        if output_dim is not None:
            layer = nn.Linear(size, output_dim, bias=output_use_bias)
            initialize(layer.weight, output_weights_initializer, output_weights_initializer_config)
            initialize(layer.bias, output_bias_initializer, output_bias_initializer_config)
            layers += _with_norm_and_activation(
                layer, output_layer_use_layernorm, get_activation(output_activation)
            )
        self.mlp = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output for [..., input_dim].

        In small networks, calling modules takes longer than their operations, so plain layers are
        computed here; activations work in place on the output of the previous layer.
        """
        layers = list(self.mlp._modules.values())
        if layers:
            x = in_dtype_of(x, layers[0])
        before = None
        for layer in layers:
            if layer._forward_hooks or layer._forward_pre_hooks:
                x, before = layer(x), None
                continue
            kind = type(layer)
            if kind is nn.Linear:
                weight: Any = layer._parameters["weight"]
                x = functional.linear(x, weight, layer._parameters["bias"])
            elif before is nn.Linear and kind is nn.ReLU:
                x = torch.relu_(x)
            elif before is nn.Linear and kind is nn.Tanh:
                x = torch.tanh_(x)
            else:
                x = layer(x)
            before = kind
        return x


def _with_norm_and_activation(
    layer: nn.Linear, use_layernorm: bool, activation: Callable[[], nn.Module] | None
) -> list[nn.Module]:
    layers: list[nn.Module] = [layer]
    if use_layernorm:
        layers.append(nn.LayerNorm(layer.out_features, eps=_LAYER_NORM_EPS))
    if activation is not None:
        layers.append(activation())
    return layers


class TorchCNN(nn.Module):
    """Convolutions over images with channels last, [..., H, W, C] in and out."""

    def __init__(
        self,
        *,
        input_dims: Sequence[int],
        cnn_filter_specifiers: Sequence[Sequence[object]],
        cnn_use_bias: bool = True,
        cnn_use_layernorm: bool = False,
        cnn_activation: object = "relu",
        cnn_kernel_initializer: Initializer = None,
        cnn_kernel_initializer_config: Mapping[str, object] | None = None,
        cnn_bias_initializer: Initializer = None,
        cnn_bias_initializer_config: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__()
        activation = get_activation(cnn_activation)
        layers: list[nn.Module] = []
        height, width, channels = input_dims
        size = (height, width)
        for out_channels, kernel, stride, padding in map(filter_specifier, cnn_filter_specifiers):
            if padding == "same":
                layers.append(nn.ZeroPad2d(same_padding(size, kernel, stride)))
            layer = nn.Conv2d(channels, out_channels, kernel, stride, bias=cnn_use_bias)
            initialize(layer.weight, cnn_kernel_initializer, cnn_kernel_initializer_config)
            initialize(layer.bias, cnn_bias_initializer, cnn_bias_initializer_config)
            layers.append(layer)
            if cnn_use_layernorm:
                layers.append(LayerNorm1D(out_channels, eps=_LAYER_NORM_EPS))
            if activation is not None:
                layers.append(activation())
            size, channels = convolved_size(size, kernel, stride, padding), out_channels
        self.cnn = nn.Sequential(*layers)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the output for [B, H, W, C]."""
        y: torch.Tensor = self.cnn(images.permute(0, 3, 1, 2))
        return y.permute(0, 2, 3, 1)


class TorchCNNTranspose(nn.Module):
    """Transposed convolutions over images with channels last. Each multiplies the size by its
    stride; the last one has no activation.
    """

    def __init__(
        self,
        *,
        input_dims: Sequence[int],
        cnn_transpose_filter_specifiers: Sequence[Sequence[object]],
        cnn_transpose_use_bias: bool = True,
        cnn_transpose_activation: object = "relu",
        cnn_transpose_use_layernorm: bool = False,
        cnn_transpose_kernel_initializer: Initializer = None,
        cnn_transpose_kernel_initializer_config: Mapping[str, object] | None = None,
        cnn_transpose_bias_initializer: Initializer = None,
        cnn_transpose_bias_initializer_config: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__()
        activation = get_activation(cnn_transpose_activation)
        layers: list[nn.Module] = []
        channels = input_dims[2]
        last = len(cnn_transpose_filter_specifiers) - 1
        for i, specifier in enumerate(cnn_transpose_filter_specifiers):
            out_channels, kernel, stride, _ = filter_specifier(specifier)
            bias = cnn_transpose_use_bias or i == last
            layer = nn.ConvTranspose2d(channels, out_channels, kernel, stride, bias=bias)
            initialize(
                layer.weight,
                cnn_transpose_kernel_initializer,
                cnn_transpose_kernel_initializer_config,
            )
            initialize(
                layer.bias, cnn_transpose_bias_initializer, cnn_transpose_bias_initializer_config
            )
            layers += [layer, _CropToStride(kernel, stride)]
            if i < last and cnn_transpose_use_layernorm:
                layers.append(LayerNorm1D(out_channels, eps=_LAYER_NORM_EPS))
            if i < last and activation is not None:
                layers.append(activation())
            channels = out_channels
        self.cnn_transpose = nn.Sequential(*layers)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the output for [B, H, W, C]."""
        y: torch.Tensor = self.cnn_transpose(images.permute(0, 3, 1, 2))
        return y.permute(0, 2, 3, 1)


class _CropToStride(nn.Module):
    """Crops or pads the result of a transposed convolution to input size times stride."""

    def __init__(self, kernel: Size, stride: Size) -> None:
        super().__init__()
        self.margins: list[int] = []  # width first, as `pad` expects
        for k, s in ((kernel[1], stride[1]), (kernel[0], stride[0])):
            before = (k - s) // 2
            self.margins += [-before, before - (k - s)]

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return nn.functional.pad(images, self.margins)


class LayerNorm1D(nn.Module):
    """LayerNorm over the channels of [B, C, H, W]."""

    def __init__(self, num_features: int, **kwargs: Any) -> None:
        super().__init__()
        self.layer_norm = nn.LayerNorm(num_features, **kwargs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layer_norm(x.permute(0, 2, 3, 1))
        return y.permute(0, 3, 1, 2)


def filter_specifier(given: Sequence[Any]) -> tuple[int, Size, Size, str]:
    """Parse [channels, kernel, stride(, padding)] to channels, kernel, stride and padding.

    Raises:
        ValueError: The list has a different form.
    """
    padding = given[3] if len(given) == 4 else "same"
    if len(given) not in (3, 4) or padding not in ("same", "valid"):
        raise ValueError(
            f"{given!r} is not a convolution: use [channels, kernel, stride] or "
            '[channels, kernel, stride, "same" | "valid"].'
        )
    return int(given[0]), _pair(given[1]), _pair(given[2]), str(padding)


def _pair(value: Tree) -> Size:
    return (int(value), int(value)) if isinstance(value, int) else (int(value[0]), int(value[1]))


def convolved_size(size: Size, kernel: Size, stride: Size, padding: str) -> Size:
    """Return the size of an image after a convolution.

    Raises:
        ValueError: The image is smaller than the kernel.
    """
    if padding == "same":
        return (-(-size[0] // stride[0]), -(-size[1] // stride[1]))
    height, width = ((size[i] - kernel[i]) // stride[i] + 1 for i in (0, 1))
    if height < 1 or width < 1:
        raise ValueError(
            f"A convolution with kernel {kernel} and padding 'valid' does not fit an image of "
            f"{size[0]} x {size[1]}. Change `conv_filters`."
        )
    return (height, width)


def same_padding(size: Size, kernel: Size, stride: Size) -> tuple[int, int, int, int]:
    """Return left, right, top and bottom padding for an output of input size / stride."""
    out = convolved_size(size, kernel, stride, "same")
    total = [max(0, (out[i] - 1) * stride[i] + kernel[i] - size[i]) for i in (0, 1)]
    top, left = total[0] // 2, total[1] // 2
    return (left, total[1] - left, top, total[0] - top)
