"""`ModelCatalog`: user-defined networks, distributions and preprocessors, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from syncline.rl.older import registered
from syncline.rl.older.model_config import MODEL_DEFAULTS
from syncline.rl.older.preprocessors import Preprocessor, preprocessor_class
from syncline.rl.older.torch.action_dists import (
    TorchCategorical,
    TorchDeterministic,
    TorchDiagGaussian,
    TorchDirichlet,
    TorchMultiCategorical,
)
from syncline.rl.older.torch.model_v2 import TorchModelV2, preprocessed_space
from syncline.rl.older.torch.networks import (
    AttentionWrapper,
    FullyConnectedNetwork,
    LSTMWrapper,
    VisionNetwork,
)
from syncline.rl.value_types import CheckedSpace, Env, Space, Tree


class ModelCatalog:
    """Registers and creates parts of networks. All methods are static."""

    @staticmethod
    def register_custom_model(model_name: str, model_class: type) -> None:
        """Register a subclass of `TorchModelV2`, for `model={"custom_model": name}`."""
        registered.register("custom_model", model_name, model_class)

    @staticmethod
    def register_custom_action_dist(action_dist_name: str, action_dist_class: type) -> None:
        """Register a subclass of `TorchDistributionWrapper`, for `custom_action_dist`."""
        registered.register("custom_action_dist", action_dist_name, action_dist_class)

    @staticmethod
    def register_custom_preprocessor(preprocessor_name: str, preprocessor_class: type) -> None:
        """Register a subclass of `Preprocessor`, for `custom_preprocessor`."""
        registered.register("custom_preprocessor", preprocessor_name, preprocessor_class)

    @staticmethod
    def get_action_dist(
        action_space: Space,
        config: Mapping[str, object] | None = None,
        dist_type: object = None,
        framework: str = "torch",
        **_: object,
    ) -> tuple[Any, int]:
        """Return the class of distributions over a space, and the number of outputs that it needs.

        Raises:
            NotImplementedError: The space has no distribution.
        """
        config = config or MODEL_DEFAULTS
        given = config.get("custom_action_dist")
        if given:
            cls = registered.resolve("custom_action_dist", given)
            return cls, cls.required_model_output_shape(action_space, config)
        if isinstance(action_space, gym.spaces.Discrete):
            cls = TorchCategorical
        elif isinstance(action_space, gym.spaces.MultiDiscrete):
            lengths = [int(each) for each in action_space.nvec.reshape(-1)]

            def multi(inputs: Tree, model: object = None) -> TorchMultiCategorical:
                return TorchMultiCategorical(inputs, model, lengths, action_space)

            return multi, sum(lengths)
        elif isinstance(action_space, gym.spaces.Box):
            cls = {"deterministic": TorchDeterministic, "dirichlet": TorchDirichlet}.get(
                str(dist_type), TorchDiagGaussian
            )
        else:
            raise NotImplementedError(
                f"Older releases have no distribution over {action_space}. Register one "
                "with `ModelCatalog.register_custom_action_dist`."
            )
        return cls, cls.required_model_output_shape(action_space, config)

    @staticmethod
    def get_model_v2(
        obs_space: Space,
        action_space: Space,
        num_outputs: int,
        model_config: Mapping[str, object],
        framework: str = "torch",
        name: str = "default_model",
        model_interface: type | None = None,
        default_model: type | None = None,
        **model_kwargs: object,
    ) -> TorchModelV2:
        """Return a network: the custom one in the options, or the default one for the space."""
        config = {**MODEL_DEFAULTS, **model_config}
        space = preprocessed_space(obs_space)
        given = config.get("custom_model")
        if given:
            own = {**(config.get("custom_model_config") or {}), **model_kwargs}
            cls = registered.resolve("custom_model", given)
            made: TorchModelV2 = cls(space, action_space, num_outputs, config, name, **own)
            return made
        chosen: Any = default_model or _default(space, config)
        return chosen(space, action_space, num_outputs, config, name)  # type: ignore[no-any-return]

    @staticmethod
    def get_preprocessor(
        env: Env, options: Mapping[str, object] | None = None, **_: object
    ) -> Preprocessor:
        """Return the preprocessor of an environment's observations."""
        return ModelCatalog.get_preprocessor_for_space(env.observation_space, options)

    @staticmethod
    def get_preprocessor_for_space(
        observation_space: Space, options: Mapping[str, object] | None = None, **_: object
    ) -> Preprocessor:
        """Return the preprocessor of a space: the custom one in the options, or the default."""
        config = {**MODEL_DEFAULTS, **(options or {})}
        given = config.get("custom_preprocessor")
        cls = (
            registered.resolve("custom_preprocessor", given)
            if given
            else preprocessor_class(observation_space)
        )
        made: Preprocessor = cls(observation_space, config)
        return made


def _default(space: CheckedSpace, config: Mapping[str, object]) -> type:
    if config["use_lstm"]:
        return LSTMWrapper
    if config["use_attention"]:
        return AttentionWrapper
    return VisionNetwork if len(space.shape) == 3 else FullyConnectedNetwork
