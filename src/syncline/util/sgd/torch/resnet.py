"""ResNets for images of 32 x 32 pixels, in the CIFAR-10 variant of He et al., "Deep Residual
Learning for Image Recognition" (2015).

Unlike the network for ImageNet, the first convolution is 3 x 3 with stride 1 and without pooling,
so that small images keep their resolution. Inputs are `(batch, 3, 32, 32)`, outputs `(batch, 10)`
logits. Each function is a `model_creator` and ignores its argument, the trainer's `config`.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

__all__ = [
    "BasicBlock",
    "Bottleneck",
    "ResNet",
    "ResNet18",
    "ResNet34",
    "ResNet50",
    "ResNet101",
    "ResNet152",
]

STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))
"""Width and first stride of each stage."""


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False),
        nn.BatchNorm2d(outputs),
    )


class _Residual(nn.Module):
    """A residual block: the output of `body` plus the input, projected if the shape changes."""

    expansion = 1
    """Output channels per unit of width."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.body = self._body(inputs, width, stride)
        self.shortcut = (
            nn.Identity()
            if stride == 1 and inputs == outputs
            else _convolution(inputs, outputs, 1, stride)
        )

    def _body(self, inputs: int, width: int, stride: int) -> nn.Sequential:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.body(x) + self.shortcut(x))


class BasicBlock(_Residual):
    """Two 3 x 3 convolutions."""

    def _body(self, inputs: int, width: int, stride: int) -> nn.Sequential:
        return nn.Sequential(
            _convolution(inputs, width, 3, stride), nn.ReLU(), _convolution(width, width, 3)
        )


class Bottleneck(_Residual):
    """A 3 x 3 convolution between two 1 x 1 convolutions, which narrow and widen."""

    expansion = 4

    def _body(self, inputs: int, width: int, stride: int) -> nn.Sequential:
        return nn.Sequential(
            _convolution(inputs, width, 1),
            nn.ReLU(),
            _convolution(width, width, 3, stride),
            nn.ReLU(),
            _convolution(width, width * self.expansion, 1),
        )


class ResNet(nn.Module):
    """A residual network of four stages.

    Args:
        block: Class of the residual blocks.
        num_blocks: Number of blocks of each stage.
        num_classes: Number of outputs.
    """

    def __init__(
        self, block: type[_Residual], num_blocks: tuple[int, int, int, int], num_classes: int = 10
    ) -> None:
        super().__init__()
        inputs = STAGES[0][0]
        layers: list[nn.Module] = [_convolution(3, inputs, 3), nn.ReLU()]
        for (width, first_stride), blocks in zip(STAGES, num_blocks, strict=True):
            for number in range(blocks):
                layers.append(block(inputs, width, first_stride if number == 0 else 1))
                inputs = width * block.expansion
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(inputs, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map `(batch, 3, height, width)` to `(batch, num_classes)`."""
        logits: Tensor = self.classifier(self.features(x).mean((2, 3)))
        return logits


def ResNet18(_: object = None) -> ResNet:
    """Return a network of 18 layers with 11.2 million parameters."""
    return ResNet(BasicBlock, (2, 2, 2, 2))


def ResNet34(_: object = None) -> ResNet:
    """Return a network of 34 layers with 21.3 million parameters."""
    return ResNet(BasicBlock, (3, 4, 6, 3))


def ResNet50(_: object = None) -> ResNet:
    """Return a network of 50 layers with 23.5 million parameters."""
    return ResNet(Bottleneck, (3, 4, 6, 3))


def ResNet101(_: object = None) -> ResNet:
    """Return a network of 101 layers with 42.5 million parameters."""
    return ResNet(Bottleneck, (3, 4, 23, 3))


def ResNet152(_: object = None) -> ResNet:
    """Return a network of 152 layers with 58.2 million parameters."""
    return ResNet(Bottleneck, (3, 8, 36, 3))
