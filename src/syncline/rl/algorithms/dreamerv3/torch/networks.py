"""Encoder, decoder and heads of DreamerV3, and the sizes of its models.

Covered: observations as vectors and images, layers. Not covered: the recurrent state (`rssm`) and
the policy (`actor`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import nn
from torch.nn.functional import pad

from syncline.rl.algorithms.dreamerv3.torch.formulas import symlog
from syncline.rl.modules.torch.observations import (
    at,
    image_input,
    is_image,
    leaf_spaces,
    to_vector,
    vector_size,
)
from syncline.rl.value_types import OptionMapping, Space, Tree
from syncline.suggestions import did_you_mean

SMALLEST_MAP = 4
"""Height or width at which convolutions stop."""


@dataclass(frozen=True, kw_only=True)
class ModelSize:
    """Widths of the networks (table B of the paper; the sizes below XS are RLlib's)."""

    dense_units: int
    """Width of fully connected layers."""
    num_dense_layers: int
    """Hidden layers of encoder, decoder and heads."""
    gru_units: int
    """Size of the deterministic state h."""
    num_categoricals: int
    """Variables of the stochastic state z."""
    num_classes: int
    """Number of values of each variable."""
    cnn_multiplier: int
    """Channels of the first convolution; each further convolution doubles them."""


def _size(dense: int, layers: int, gru: int, latents: int, channels: int) -> ModelSize:
    return ModelSize(
        dense_units=dense,
        num_dense_layers=layers,
        gru_units=gru,
        num_categoricals=latents,
        num_classes=latents,
        cnn_multiplier=channels,
    )


MODEL_SIZES = {
    "nano": _size(16, 1, 16, 4, 2),
    "micro": _size(32, 1, 32, 8, 4),
    "mini": _size(64, 1, 64, 16, 8),
    "XXS": _size(128, 1, 128, 32, 16),
    "XS": _size(256, 1, 256, 32, 24),
    "S": _size(512, 2, 512, 32, 32),
    "M": _size(640, 3, 1024, 32, 48),
    "L": _size(768, 4, 2048, 32, 64),
    "XL": _size(1024, 5, 4096, 32, 96),
}


def model_size(config: OptionMapping) -> ModelSize:
    """Return the widths of `config["model_size"]`, overridden by those in `config`.

    Raises:
        ValueError: The size is unknown.
    """
    name = config.get("model_size", "XS")
    if name not in MODEL_SIZES:
        raise ValueError(
            f"`model_size={name!r}` is unknown.{did_you_mean(str(name), MODEL_SIZES)} Use one of "
            f"{', '.join(MODEL_SIZES)}."
        )
    size = MODEL_SIZES[name]
    widths = {each.name: getattr(size, each.name) for each in fields(ModelSize)}
    return ModelSize(**{key: int(config.get(key, value)) for key, value in widths.items()})


class MLP(nn.Sequential):
    """Layers without bias, each with LayerNorm and SiLU, and an optional linear output layer.

    Args:
        inputs: Size of the input.
        units: Width of each layer.
        layers: Number of layers.
        outputs: Size of the output; None for no output layer.
        zero: Initialize the output layer with zeros, so that all outputs are 0 at first.
    """

    def __init__(
        self, inputs: int, units: int, layers: int, outputs: int | None = None, zero: bool = False
    ) -> None:
        made: list[nn.Module] = []
        for _ in range(layers):
            made += [nn.Linear(inputs, units, bias=False), nn.LayerNorm(units, eps=1e-3), nn.SiLU()]
            inputs = units
        if outputs is not None:
            made.append(nn.Linear(inputs, outputs))
        super().__init__(*made)
        for each in made:
            if isinstance(each, nn.Linear):
                initialize(each)
        if zero:
            nn.init.zeros_(made[-1].weight)  # type: ignore[arg-type]
        self.num_outputs = inputs if outputs is None else outputs


def initialize(layer: nn.Module) -> None:
    """Initialize a layer with a truncated normal distribution, scaled by the mean fan."""
    weight: Any = layer.weight
    receptive = weight[0, 0].numel() if weight.dim() > 2 else 1
    fan = (weight.shape[0] + weight.shape[1]) * receptive / 2.0
    std = (1.0 / fan) ** 0.5 / 0.87962566
    nn.init.trunc_normal_(weight, std=std, a=-2.0 * std, b=2.0 * std)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)  # type: ignore[arg-type]


class ChannelNorm(nn.Module):
    """LayerNorm over the channels of [B, C, H, W]."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels, eps=1e-3)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Return the normalized maps."""
        found: torch.Tensor = self.norm(maps.permute(0, 2, 3, 1))
        return found.permute(0, 3, 1, 2)


class Observations:
    """The parts of an observation space: one vector, and images.

    Args:
        space: The observation space.
        use_symlog: Apply symlog to the vector.
    """

    def __init__(self, space: Space, use_symlog: bool) -> None:
        leaves = leaf_spaces(space)
        self.images = {path: leaf.shape for path, leaf in leaves.items() if is_image(leaf)}
        self._vectors = {path: leaf for path, leaf in leaves.items() if path not in self.images}
        self.vector_size = sum(vector_size(leaf) for leaf in self._vectors.values())
        self._use_symlog = use_symlog

    def parts(self, obs: Tree) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
        """Return the vector [*batch, D], or None, and the images [*batch, H, W, C] in [0, 1]."""
        vector = None
        if self._vectors:
            found = [to_vector(leaf, at(obs, path)) for path, leaf in self._vectors.items()]
            vector = found[0] if len(found) == 1 else torch.cat(found, -1)
            if self._use_symlog:
                vector = symlog(vector)
        images = [image_input(at(obs, path), torch.float32) for path in self.images]
        return vector, images


class Encoder(nn.Module):
    """Maps observations to embeddings: an MLP for vectors, convolutions of stride 2 for images."""

    def __init__(self, observations: Observations, size: ModelSize) -> None:
        super().__init__()
        self.num_outputs = 0
        self.mlp: MLP | None = None
        if observations.vector_size:
            self.mlp = MLP(observations.vector_size, size.dense_units, size.num_dense_layers)
            self.num_outputs += size.dense_units
        encoders = [
            ImageEncoder(shape, size.cnn_multiplier) for shape in observations.images.values()
        ]
        self.cnns = nn.ModuleList(encoders)
        self.num_outputs += sum(each.num_outputs for each in encoders)

    def forward(self, vector: torch.Tensor | None, images: list[torch.Tensor]) -> torch.Tensor:
        """Return embeddings [*batch, E]."""
        found = [] if self.mlp is None or vector is None else [self.mlp(vector)]
        found += [cnn(each) for cnn, each in zip(self.cnns, images, strict=True)]
        return found[0] if len(found) == 1 else torch.cat(found, -1)


class Decoder(nn.Module):
    """Maps states (h, z) to predicted observations."""

    def __init__(self, features: int, observations: Observations, size: ModelSize) -> None:
        super().__init__()
        self.mlp: MLP | None = None
        if observations.vector_size:
            self.mlp = MLP(
                features, size.dense_units, size.num_dense_layers, observations.vector_size
            )
        self.cnns = nn.ModuleList(
            ImageDecoder(features, shape, size) for shape in observations.images.values()
        )

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
        """Return the predicted vector [*batch, D], or None, and images [*batch, H, W, C]."""
        vector = None if self.mlp is None else self.mlp(features)
        return vector, [cnn(features) for cnn in self.cnns]

    def loss(
        self, features: torch.Tensor, vector: torch.Tensor | None, images: list[torch.Tensor]
    ) -> torch.Tensor:
        """Return the squared errors [*batch], summed over the elements of the observation."""
        found, drawn = self(features)
        dims = features.shape[:-1]
        losses = [
            (each - target).square().reshape(*dims, -1).sum(-1)
            for each, target in zip(drawn, images, strict=True)
        ]
        if vector is not None:
            losses.append((found - vector).square().sum(-1))
        total: torch.Tensor = torch.stack(losses).sum(0)
        return total


def num_convolutions(height: int, width: int) -> int:
    """Return the number of halvings until the shorter side of an image has about 4 rows."""
    count = 0
    while min(height, width) / 2 ** (count + 1) > SMALLEST_MAP - 1:
        count += 1
    return max(count, 1)


def _padded(length: int, count: int) -> int:
    """Return the smallest multiple of 2 ** count that is not below `length`."""
    return -(-length >> count) << count


class ImageEncoder(nn.Module):
    """Convolutions with kernel 4 and stride 2 down to maps of about 4 x 4."""

    def __init__(self, shape: Any, channels: int) -> None:
        super().__init__()
        height, width, inputs = shape
        count = num_convolutions(height, width)
        tall, wide = _padded(height, count), _padded(width, count)
        self._margins = (0, wide - width, 0, tall - height)
        layers: list[nn.Module] = []
        for _ in range(count):
            layer = nn.Conv2d(inputs, channels, 4, 2, padding=1, bias=False)
            initialize(layer)
            layers += [layer, ChannelNorm(channels), nn.SiLU()]
            inputs, channels = channels, 2 * channels
        self.layers = nn.Sequential(*layers)
        self.num_outputs = inputs * (tall >> count) * (wide >> count)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return embeddings [*batch, E] of [*batch, H, W, C]."""
        dims = images.shape[:-3]
        maps = images.reshape(-1, *images.shape[-3:]).permute(0, 3, 1, 2) - 0.5
        found: torch.Tensor = self.layers(pad(maps, self._margins))
        return found.reshape(*dims, -1)


class ImageDecoder(nn.Module):
    """Fully connected layers, then transposed convolutions that mirror `ImageEncoder`."""

    def __init__(self, features: int, shape: Any, size: ModelSize) -> None:
        super().__init__()
        self._height, self._width, outputs = shape
        count = num_convolutions(self._height, self._width)
        rows = _padded(self._height, count) >> count
        columns = _padded(self._width, count) >> count
        widest = size.cnn_multiplier * 2 ** (count - 1)
        self._map = (widest, rows, columns)
        self.dense = MLP(features, size.dense_units, size.num_dense_layers, widest * rows * columns)
        layers: list[nn.Module] = []
        for number in range(count):
            is_last = number == count - 1
            after = outputs if is_last else widest // 2
            layer = nn.ConvTranspose2d(widest, after, 4, 2, padding=1, bias=is_last)
            initialize(layer)
            layers.append(layer)
            if not is_last:
                layers += [ChannelNorm(after), nn.SiLU()]
            widest = after
        self.layers = nn.Sequential(*layers)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return images [*batch, H, W, C], around [0, 1]."""
        maps = self.dense(features).reshape(-1, *self._map)
        images: torch.Tensor = self.layers(maps)[:, :, : self._height, : self._width] + 0.5
        return images.permute(0, 2, 3, 1).reshape(
            *features.shape[:-1], self._height, self._width, -1
        )
