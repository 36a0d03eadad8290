"""`DefaultModelConfig`: the settings of the networks of default modules.

Names and defaults are RLlib's; `use_gru` and the attention settings are additions.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from syncline.rl.value_types import Batch, Options
from syncline.suggestions import did_you_mean

Initializer: TypeAlias = str | Callable[..., Any] | None
"""Name of a function of `torch.nn.init` (with underscore), a function, or None for the default."""


@dataclass
class DefaultModelConfig:
    """Settings of the default modules: encoder, memory, heads.

    Custom modules take any dict as `model_config` instead. Activations are "tanh",
    "relu", "silu" ("swish"), "linear" (None), or the name of a class of `torch.nn`.
    """

    fcnet_hiddens: list[int] = field(default_factory=lambda: [256, 256])
    """Sizes of the fully connected layers of the encoder."""
    fcnet_activation: str | None = "tanh"
    """Activation after each of these layers."""
    fcnet_kernel_initializer: Initializer = None
    """Initializer of their weights."""
    fcnet_kernel_initializer_kwargs: Options | None = None
    """Arguments of this initializer."""
    fcnet_bias_initializer: Initializer = None
    """Initializer of their biases."""
    fcnet_bias_initializer_kwargs: Options | None = None
    """Arguments of this initializer."""
    fcnet_use_layernorm: bool = False
    """Add a LayerNorm between each layer and its activation."""

    conv_filters: Sequence[Any] | None = None
    """Convolutions of the encoder of images: [channels, kernel, stride] or, with "same" or "valid",
    [channels, kernel, stride, padding] each; None chooses them by the image size."""
    conv_activation: str | None = "relu"
    """Activation after each convolution."""
    conv_kernel_initializer: Initializer = None
    """Initializer of the kernels."""
    conv_kernel_initializer_kwargs: Options | None = None
    """Arguments of this initializer."""
    conv_bias_initializer: Initializer = None
    """Initializer of the biases."""
    conv_bias_initializer_kwargs: Options | None = None
    """Arguments of this initializer."""

    head_fcnet_hiddens: list[int] = field(default_factory=list)
    """Sizes of the hidden layers of each head (policy, value, Q)."""
    head_fcnet_activation: str | None = "relu"
    """Activation after each of these layers."""
    head_fcnet_kernel_initializer: Initializer = None
    """Initializer of their weights."""
    head_fcnet_kernel_initializer_kwargs: Options | None = None
    """Arguments of this initializer."""
    head_fcnet_bias_initializer: Initializer = None
    """Initializer of their biases."""
    head_fcnet_bias_initializer_kwargs: Options | None = None
    """Arguments of this initializer."""
    head_fcnet_use_layernorm: bool = False
    """Add a LayerNorm between each hidden layer and its activation."""

    free_log_std: bool = False
    """Learn the log standard deviations of Gaussian policies as parameters, independent of the
    observation, instead of as network outputs."""
    log_std_clip_param: float = 20.0
    """Maximum absolute value of a log standard deviation; infinity for no limit."""
    vf_share_layers: bool = True
    """Share the encoder between policy and value function."""

    use_lstm: bool = False
    """Add an LSTM after the encoder."""
    use_gru: bool = False
    """Add a GRU after the encoder; the settings `lstm_*` apply to it."""
    max_seq_len: int = 20
    """Length of training sequences for modules with memory."""
    lstm_cell_size: int = 256
    """State size of the LSTM or GRU."""
    lstm_use_prev_action: bool = False
    """Append the previous action to the observation."""
    lstm_use_prev_reward: bool = False
    """Append the previous reward to the observation."""
    lstm_kernel_initializer: Initializer = None
    """Initializer of the weights of the LSTM or GRU."""
    lstm_kernel_initializer_kwargs: Options | None = None
    """Arguments of this initializer."""
    lstm_bias_initializer: Initializer = None
    """Initializer of the biases of the LSTM or GRU."""
    lstm_bias_initializer_kwargs: Options | None = None
    """Arguments of this initializer."""

    use_attention: bool = False
    """Add a GTrXL (gated transformer with memory) after the encoder."""
    attention_num_transformer_units: int = 1
    """Number of stacked transformer units."""
    attention_dim: int = 64
    """Size of the input and output of each unit."""
    attention_num_heads: int = 1
    """Number of attention heads per unit."""
    attention_head_dim: int = 32
    """Size of the queries, keys and values of each head."""
    attention_memory_inference: int = 50
    """Number of previous steps that acting attends to."""
    attention_memory_training: int = 50
    """Number of previous steps that training attends to; at most that of acting."""
    attention_position_wise_mlp_dim: int = 32
    """Size of the hidden layer in the MLP of each unit."""
    attention_init_gru_gate_bias: float = 2.0
    """Initial bias of the gates; positive values make each unit start close to the identity."""

    fusionnet_hiddens: list[int] = field(default_factory=lambda: [256, 256])
    """Sizes of the layers after the concatenated encoders of several inputs."""
    fusionnet_activation: str | None = "tanh"
    """Activation after each of these layers."""
    fusionnet_kernel_initializer: Initializer = None
    """Initializer of their weights."""
    fusionnet_kernel_initializer_kwargs: Options | None = None
    """Arguments of this initializer."""
    fusionnet_bias_initializer: Initializer = None
    """Initializer of their biases."""
    fusionnet_bias_initializer_kwargs: Options | None = None
    """Arguments of this initializer."""

    def __post_init__(self) -> None:
        memories = [
            name for name in ("use_lstm", "use_gru", "use_attention") if getattr(self, name)
        ]
        if len(memories) > 1:
            raise ValueError(f"{' and '.join(memories)} are mutually exclusive: set one of them.")
        for name in ("max_seq_len", "lstm_cell_size", "attention_num_transformer_units"):
            _check_positive(name, getattr(self, name))
        for name in ("attention_dim", "attention_num_heads", "attention_head_dim"):
            _check_positive(name, getattr(self, name))
        for name in ("attention_memory_inference", "attention_position_wise_mlp_dim"):
            _check_positive(name, getattr(self, name))
        if not 0 <= self.attention_memory_training <= self.attention_memory_inference:
            raise ValueError(
                f"`attention_memory_training={self.attention_memory_training}` must be between 0 "
                f"and `attention_memory_inference={self.attention_memory_inference}`, because "
                "training uses the memory that acting recorded."
            )
        if self.log_std_clip_param <= 0:
            raise ValueError(
                f"`log_std_clip_param={self.log_std_clip_param}` must be positive; "
                "use float('inf') for no limit."
            )

    @property
    def has_memory(self) -> bool:
        """True if the encoder has a state that persists between steps."""
        return self.use_lstm or self.use_gru or self.use_attention


def model_config_dict(config: DefaultModelConfig | Mapping[str, object] | None) -> Batch:
    """Return the settings as a new dict; dataclass values are copied."""
    if config is None:
        return {}
    if isinstance(config, Mapping):
        return dict(config)
    if dataclasses.is_dataclass(config):
        return dataclasses.asdict(config)
    raise TypeError(
        f"`model_config` is a {type(config).__name__}: pass a dict or a DefaultModelConfig."
    )


def complete_model_config(
    config: DefaultModelConfig | Mapping[str, object] | None,
) -> DefaultModelConfig:
    """Return all settings of a default module, including defaults.

    Unknown names are ignored, because the dict may also contain settings of a custom class; names
    that resemble a known one cause a warning.

    Raises:
        ValueError: A value is out of range.
    """
    if isinstance(config, DefaultModelConfig):
        return config
    given = model_config_dict(config)
    known = {each.name for each in dataclasses.fields(DefaultModelConfig)}
    for name in given.keys() - known:
        if hint := did_you_mean(name, known):
            warnings.warn(f"`model_config` has no setting {name!r}.{hint}", stacklevel=2)
    return DefaultModelConfig(**{name: given[name] for name in given.keys() & known})


def _check_positive(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"`{name}={value}` must be at least 1.")
