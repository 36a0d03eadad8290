"""Network options of older releases, and their current equivalents."""

from __future__ import annotations

from collections.abc import Mapping

from syncline.rl.value_types import Options

MODEL_DEFAULTS: Options = {
    "fcnet_hiddens": [256, 256],
    "fcnet_activation": "tanh",
    "fcnet_weights_initializer": None,
    "fcnet_weights_initializer_config": None,
    "fcnet_bias_initializer": None,
    "fcnet_bias_initializer_config": None,
    "conv_filters": None,
    "conv_activation": "relu",
    "post_fcnet_hiddens": [],
    "post_fcnet_activation": "relu",
    "free_log_std": False,
    "log_std_clip_param": 20.0,
    "no_final_linear": False,
    "vf_share_layers": True,
    "use_lstm": False,
    "max_seq_len": 20,
    "lstm_cell_size": 256,
    "lstm_use_prev_action": False,
    "lstm_use_prev_reward": False,
    "_time_major": False,
    "use_attention": False,
    "attention_num_transformer_units": 1,
    "attention_dim": 64,
    "attention_num_heads": 1,
    "attention_head_dim": 32,
    "attention_memory_inference": 50,
    "attention_memory_training": 50,
    "attention_position_wise_mlp_dim": 32,
    "attention_init_gru_gate_bias": 2.0,
    "attention_use_n_prev_actions": 0,
    "attention_use_n_prev_rewards": 0,
    "framestack": True,
    "dim": 84,
    "grayscale": False,
    "zero_mean": True,
    "custom_model": None,
    "custom_model_config": {},
    "custom_action_dist": None,
    "custom_preprocessor": None,
    "encoder_latent_dim": None,
    "always_check_shapes": False,
    "lstm_use_prev_action_reward": -1,
}
"""Options and their defaults."""

RENAMED = {
    "post_fcnet_hiddens": "head_fcnet_hiddens",
    "post_fcnet_activation": "head_fcnet_activation",
    "fcnet_weights_initializer": "fcnet_kernel_initializer",
    "fcnet_weights_initializer_config": "fcnet_kernel_initializer_kwargs",
    "fcnet_bias_initializer_config": "fcnet_bias_initializer_kwargs",
}
"""Current names of older options."""

_UNUSED = frozenset({"_time_major", "no_final_linear", "encoder_latent_dim", "always_check_shapes"})
_IMAGES = frozenset({"framestack", "dim", "grayscale", "zero_mean"})
"""Options for preprocessing Atari games, which environments read."""


def converted(model: Mapping[str, object]) -> Options:
    """Convert network options from older releases to current ones."""
    made: Options = {}
    for name, value in model.items():
        if name in _UNUSED or name in _IMAGES or name == "lstm_use_prev_action_reward":
            continue
        if name in ("custom_model", "custom_action_dist", "custom_preprocessor") and not value:
            continue
        made[RENAMED.get(name, name)] = value
    if model.get("lstm_use_prev_action_reward") not in (None, -1, False):
        made.update(lstm_use_prev_action=True, lstm_use_prev_reward=True)
    if made.get("custom_model") or made.get(
        "custom_action_dist"
    ):  # networks from older releases read the older names
        made["older_model"] = {**MODEL_DEFAULTS, **model}
    return made
