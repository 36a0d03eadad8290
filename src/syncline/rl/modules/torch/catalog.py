"""`Catalog`: chooses encoders, heads and distributions for spaces and model settings.

Default modules get their parts from a catalog. Override its methods to replace single parts.
rest. `PPOCatalog` serves all modules with a policy and a value function.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from syncline.rl.columns.trees import leaves, map_tree
from syncline.rl.modules.default_model_config import (
    DefaultModelConfig,
    complete_model_config,
    model_config_dict,
)
from syncline.rl.modules.torch.attention import AttentionEncoderConfig
from syncline.rl.modules.torch.distributions.categorical import (
    TorchCategorical,
    TorchMultiCategorical,
    category_counts,
)
from syncline.rl.modules.torch.distributions.gaussian import TorchDiagGaussian
from syncline.rl.modules.torch.distributions.multi import TorchMultiDistribution, space_tree
from syncline.rl.modules.torch.encoders import (
    ActorCriticEncoderConfig,
    CNNEncoderConfig,
    MLPEncoderConfig,
    NestedEncoderConfig,
    default_filters,
    plain_vector,
)
from syncline.rl.modules.torch.heads import FreeLogStdMLPHeadConfig, MLPHeadConfig
from syncline.rl.modules.torch.memory import RecurrentEncoderConfig
from syncline.rl.modules.torch.observations import is_image, leaf_spaces, vector_size
from syncline.rl.value_types import Batch, CheckedSpace, Network, OptionMapping, Options, Tree
from syncline.rl.value_types import Space as Space


class Catalog:
    """Builds an encoder and chooses the action distribution.

    Args:
        observation_space: Space of the observations.
        action_space: Space of the actions.
        model_config_dict: Settings, a dict or a `DefaultModelConfig`, completed with defaults.

    Raises:
        ValueError: The observations have no default encoder, or a setting is out of range.
    """

    action_dist_cls: Any = None
    """Class set by the module, which replaces the one chosen by the action space."""

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        model_config_dict: Mapping[str, object] | DefaultModelConfig | None = None,
        **kwargs: object,
    ) -> None:
        self.observation_space = observation_space
        self.action_space = action_space
        completed = dataclasses.asdict(complete_model_config(model_config_dict))
        self._model_config_dict: Options = completed | _as_dict(model_config_dict)
        self._latent_dims: tuple[int, ...] | None = None
        self._determine_components_hook()

    def _determine_components_hook(self) -> None:
        """Choose the settings of the encoder. Override it to change them."""
        self._encoder_config = self._get_encoder_config(
            observation_space=self.observation_space,
            action_space=self.action_space,
            model_config_dict=self._model_config_dict,
        )
        self.latent_dims = self._encoder_config.output_dims

    @property
    def latent_dims(self) -> Any:
        """Shape of the encoder's output, the input of the heads."""
        return self._latent_dims

    @latent_dims.setter
    def latent_dims(self, value: Tree) -> None:
        self._latent_dims = value

    def build_encoder(self, framework: str = "torch") -> Network:
        """Return the encoder."""
        return self._encoder_config.build(framework=framework)

    def get_action_dist_cls(self, framework: str | None = "torch") -> Any:
        """Return the class of the action distributions; None without a framework."""
        if self.action_dist_cls is not None:
            return self.action_dist_cls
        return self._get_dist_cls_from_action_space(self.action_space, framework=framework)

    @classmethod
    def _get_encoder_config(
        cls,
        observation_space: Space,
        model_config_dict: OptionMapping,
        action_space: Space | None = None,
    ) -> Any:
        """Return the settings of the encoder, with memory if configured."""
        given = model_config_dict
        if not (given["use_lstm"] or given["use_gru"] or given["use_attention"]):
            return cls._stateless_encoder_config(observation_space, given)
        tokenizer = cls.get_tokenizer_config(observation_space, dict(given))
        if given["use_attention"]:
            return AttentionEncoderConfig(
                input_dims=tokenizer.input_dims,
                tokenizer_config=tokenizer,
                num_units=given["attention_num_transformer_units"],
                dim=given["attention_dim"],
                num_heads=given["attention_num_heads"],
                head_dim=given["attention_head_dim"],
                memory=given["attention_memory_inference"],
                memory_training=given["attention_memory_training"],
                mlp_dim=given["attention_position_wise_mlp_dim"],
                init_gate_bias=given["attention_init_gru_gate_bias"],
            )
        return RecurrentEncoderConfig(
            input_dims=tokenizer.input_dims,
            tokenizer_config=tokenizer,
            recurrent_layer_type="lstm" if given["use_lstm"] else "gru",
            hidden_dim=given["lstm_cell_size"],
            hidden_weights_initializer=given["lstm_kernel_initializer"],
            hidden_weights_initializer_config=given["lstm_kernel_initializer_kwargs"],
            hidden_bias_initializer=given["lstm_bias_initializer"],
            hidden_bias_initializer_config=given["lstm_bias_initializer_kwargs"],
        )

    @classmethod
    def _stateless_encoder_config(cls, space: Space, given: Mapping[str, object]) -> Any:
        """Return the settings of an encoder of single observations.

        Vectors use fully connected layers, images use convolutions, and all other observations are
        flattened and concatenated (see `observations`).
        """
        has_filters = bool(given["conv_filters"])
        if plain_vector(space):
            return _mlp_encoder_config(space.shape, given)
        if is_image(space, has_filters=has_filters):
            return _cnn_encoder_config(space, given)
        images, vectors = {}, {}
        for path, leaf in leaf_spaces(space).items():
            if is_image(leaf, has_filters=has_filters):
                images[path] = _cnn_encoder_config(leaf, given)
            else:
                vectors[path] = vector_size(leaf)
        size = sum(vectors.values()) + sum(each.output_dims[0] for each in images.values())
        return NestedEncoderConfig(
            input_dims=(size,),
            space=space,
            cnn_configs=images,
            mlp_config=_mlp_encoder_config((size,), given),
        )

    @classmethod
    def get_tokenizer_config(cls, observation_space: Space, model_config_dict: Any) -> Any:
        """Return the settings of the encoder before a memory. Override it to change them."""
        without = {"use_lstm": False, "use_gru": False, "use_attention": False}
        return cls._get_encoder_config(
            observation_space=observation_space, model_config_dict={**model_config_dict, **without}
        )

    @classmethod
    def _get_dist_cls_from_action_space(
        cls, action_space: Space, *, framework: str | None = None
    ) -> Any:
        """Return the class of the distributions over a space; None without a framework.

        Raises:
            ValueError: The space has no default distribution.
        """
        if framework is None:
            return None
        if isinstance(action_space, gym.spaces.Discrete):
            return TorchCategorical
        if isinstance(action_space, gym.spaces.Box):
            return _gaussian_for(action_space)
        if isinstance(action_space, gym.spaces.MultiDiscrete | gym.spaces.MultiBinary):
            return TorchMultiCategorical.get_partial_dist_cls(
                space=action_space, input_lens=category_counts(action_space)
            )
        if isinstance(action_space, gym.spaces.Dict | gym.spaces.Tuple):
            spaces = space_tree(action_space)
            classes = map_tree(
                lambda leaf: cls._get_dist_cls_from_action_space(leaf, framework=framework), spaces
            )
            lengths = map_tree(
                lambda child, leaf: int(child.required_input_dim(leaf)), classes, spaces
            )
            return TorchMultiDistribution.get_partial_dist_cls(
                space=action_space,
                child_distribution_cls_struct=classes,
                input_lens=leaves(lengths),
            )
        raise ValueError(
            f"{action_space} has no default action distribution. Set `action_dist_cls` in the "
            "`setup` of your TorchRLModule, or override `Catalog.get_action_dist_cls`."
        )


class PPOCatalog(Catalog):
    """Builds the encoders and heads of policy and value function.

    To change a part, replace `actor_critic_encoder_config`, `pi_head_config` or `vf_head_config`,
    or override a `build_*` method.
    """

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        model_config_dict: Mapping[str, object] | DefaultModelConfig | None = None,
        **kwargs: object,
    ) -> None:
        super().__init__(observation_space, action_space, model_config_dict, **kwargs)
        self.actor_critic_encoder_config = ActorCriticEncoderConfig(
            base_encoder_config=self._encoder_config,
            shared=self._model_config_dict["vf_share_layers"],
        )
        self.pi_and_vf_head_hiddens = self._model_config_dict["head_fcnet_hiddens"]
        self.pi_and_vf_head_activation = self._model_config_dict["head_fcnet_activation"]
        self.pi_head_config: Any = None
        self.vf_head_config: Any = MLPHeadConfig(**self._head_settings(), output_layer_dim=1)

    def _head_settings(self) -> Batch:
        given = self._model_config_dict
        return {
            "input_dims": self.latent_dims,
            "hidden_layer_dims": self.pi_and_vf_head_hiddens,
            "hidden_layer_activation": self.pi_and_vf_head_activation,
            "hidden_layer_use_layernorm": given["head_fcnet_use_layernorm"],
            "hidden_layer_weights_initializer": given["head_fcnet_kernel_initializer"],
            "hidden_layer_weights_initializer_config": given[
                "head_fcnet_kernel_initializer_kwargs"
            ],
            "hidden_layer_bias_initializer": given["head_fcnet_bias_initializer"],
            "hidden_layer_bias_initializer_config": given["head_fcnet_bias_initializer_kwargs"],
        }

    def build_actor_critic_encoder(self, framework: str = "torch") -> Network:
        """Return the encoders of policy and value function."""
        return self.actor_critic_encoder_config.build(framework=framework)

    def build_encoder(self, framework: str = "torch") -> Network:
        """Raise NotImplementedError: use `build_actor_critic_encoder`."""
        raise NotImplementedError("PPOCatalog builds encoders by `build_actor_critic_encoder()`.")

    def build_pi_head(self, framework: str = "torch") -> Network:
        """Return the policy head, with one output per parameter of the distribution.

        Raises:
            ValueError: `free_log_std` with a distribution that is not Gaussian.
        """
        if self.pi_head_config is None:
            cls = self.get_action_dist_cls(framework=framework)
            size = cls.required_input_dim(
                space=self.action_space, model_config=self._model_config_dict
            )
            gaussian = issubclass(cls, TorchDiagGaussian)
            free_log_std = self._model_config_dict["free_log_std"]
            if free_log_std and not gaussian:
                raise ValueError(
                    f"`free_log_std=True` is for Gaussian actions, but actions of "
                    f"{self.action_space} have a {cls.__name__}. Set `free_log_std=False`."
                )
            head = FreeLogStdMLPHeadConfig if free_log_std else MLPHeadConfig
            self.pi_head_config = head(
                **self._head_settings(),
                output_layer_dim=size,
                clip_log_std=gaussian,
                log_std_clip_param=self._model_config_dict["log_std_clip_param"],
            )
        return self.pi_head_config.build(framework=framework)

    def build_vf_head(self, framework: str = "torch") -> Network:
        """Return the value head."""
        return self.vf_head_config.build(framework=framework)


def _as_dict(config: Mapping[str, object] | DefaultModelConfig | None) -> Batch:
    return model_config_dict(config)


def _mlp_encoder_config(dims: Any, given: OptionMapping) -> MLPEncoderConfig:
    """Return the settings of fully connected layers; the last one is the output layer."""
    if not given["fcnet_hiddens"]:
        raise ValueError("`fcnet_hiddens=[]` leaves no encoder: use at least one layer.")
    weights, weights_config = (
        given["fcnet_kernel_initializer"],
        given["fcnet_kernel_initializer_kwargs"],
    )
    bias, bias_config = given["fcnet_bias_initializer"], given["fcnet_bias_initializer_kwargs"]
    return MLPEncoderConfig(
        input_dims=tuple(int(each) for each in dims),
        hidden_layer_dims=list(given["fcnet_hiddens"][:-1]),
        hidden_layer_activation=given["fcnet_activation"],
        hidden_layer_use_layernorm=given["fcnet_use_layernorm"],
        hidden_layer_weights_initializer=weights,
        hidden_layer_weights_initializer_config=weights_config,
        hidden_layer_bias_initializer=bias,
        hidden_layer_bias_initializer_config=bias_config,
        output_layer_dim=given["fcnet_hiddens"][-1],
        output_layer_activation=given["fcnet_activation"],
        output_layer_use_layernorm=given["fcnet_use_layernorm"],
        output_layer_weights_initializer=weights,
        output_layer_weights_initializer_config=weights_config,
        output_layer_bias_initializer=bias,
        output_layer_bias_initializer_config=bias_config,
    )


def _cnn_encoder_config(space: CheckedSpace, given: OptionMapping) -> CNNEncoderConfig:
    return CNNEncoderConfig(
        input_dims=tuple(space.shape),
        cnn_filter_specifiers=given["conv_filters"] or default_filters(space.shape),
        cnn_activation=given["conv_activation"],
        cnn_kernel_initializer=given["conv_kernel_initializer"],
        cnn_kernel_initializer_config=given["conv_kernel_initializer_kwargs"],
        cnn_bias_initializer=given["conv_bias_initializer"],
        cnn_bias_initializer_config=given["conv_bias_initializer_kwargs"],
    )


def _gaussian_for(space: gym.spaces.Box) -> Any:
    if not np.issubdtype(space.dtype, np.floating):
        raise ValueError(
            f"Actions of {space} are integers: use a MultiDiscrete space, or a Box with a "
            "floating-point dtype."
        )
    if len(space.shape) == 1:
        return TorchDiagGaussian
    return TorchDiagGaussian.get_partial_dist_cls(space=space, event_shape=tuple(space.shape))
