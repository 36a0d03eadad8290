"""The pipelines of a configuration: user-defined and default connectors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from syncline.rl.connectors.connector import ConnectorV2
from syncline.rl.connectors.pipeline import (
    ConnectorPipelineV2,
    EnvToModulePipeline,
    LearnerConnectorPipeline,
    ModuleToEnvPipeline,
)
from syncline.rl.connectors.to_env.actions import (
    ListifyDataForVectorEnv,
    ModuleToAgentUnmapping,
    NormalizeAndClipActions,
    RemoveSingleTsTimeRankFromBatch,
    UnBatchToIndividualItems,
)
from syncline.rl.connectors.to_learner.train_columns import AddColumnsFromEpisodesToTrainBatch
from syncline.rl.connectors.to_module.items import (
    AddObservationsFromEpisodesToBatch,
    AddStatesFromEpisodesToBatch,
    AddTimeDimToBatchAndZeroPad,
    AgentToModuleMapping,
    BatchIndividualItems,
    DefaultConnector,
)
from syncline.rl.connectors.to_module.mean_std_filter import MeanStdFilter
from syncline.rl.connectors.to_module.preprocessors import PrevActionsPrevRewards
from syncline.rl.connectors.torch.actions_torch import GetActions
from syncline.rl.connectors.torch.tensors_torch import NumpyToTensor, TensorToNumpy
from syncline.rl.older.preprocessors import PreprocessorConnector
from syncline.rl.value_types import Device, Space, SpacePair

SINGLE_SPACES = "__env_single__"
"""Key of the spaces of one environment."""
VECTOR_SPACES = "__env__"
"""Key of the spaces of the vector environment."""
FILTERS = ("NoFilter", "MeanStdFilter", "ConcurrentMeanStdFilter")
"""Values of `observation_filter`."""


def env_to_module_pipeline(
    config: Any, env: Any = None, spaces: Any = None, device: Device = None
) -> EnvToModulePipeline:
    """Return the connectors from environments to modules.

    Args:
        config: The algorithm's options.
        env: The vector environment, which the configured function receives.
        spaces: Observation and action space under `SINGLE_SPACES`, if `env` is None.
        device: Device of the tensors.
    """
    pieces = _made("env_to_module_connector", config, env, spaces, device)
    if config.observation_filter in FILTERS[1:]:
        pieces.insert(0, MeanStdFilter(multi_agent=config.is_multi_agent))
    pieces = [*_preprocessors(config), *pieces, *_previous(config)]
    if config.in_evaluation:
        for piece in pieces:
            if isinstance(piece, MeanStdFilter):
                piece.update_stats = False
    if config.add_default_connectors_to_env_to_module_pipeline:
        pieces += [
            AddObservationsFromEpisodesToBatch(),
            AddTimeDimToBatchAndZeroPad(),
            AddStatesFromEpisodesToBatch(),
            *_mapping(config),
            BatchIndividualItems(multi_agent=config.is_multi_agent),
            NumpyToTensor(device=device),
        ]
    made: EnvToModulePipeline = _with_spaces(
        EnvToModulePipeline, pieces, *_single_spaces(config, env, spaces)
    )
    return made


def module_to_env_pipeline(config: Any, env: Any = None, spaces: Any = None) -> ModuleToEnvPipeline:
    """Return the connectors from modules to environments; see `env_to_module_pipeline`."""
    pieces = _made("module_to_env_connector", config, env, spaces)
    if config.add_default_connectors_to_module_to_env_pipeline:
        pieces = [
            GetActions(),
            TensorToNumpy(),
            UnBatchToIndividualItems(),
            *([ModuleToAgentUnmapping()] if config.is_multi_agent else []),
            RemoveSingleTsTimeRankFromBatch(),
            *pieces,
            NormalizeAndClipActions(
                normalize_actions=config.normalize_actions, clip_actions=config.clip_actions
            ),
            ListifyDataForVectorEnv(),
        ]
    made: ModuleToEnvPipeline = _with_spaces(
        ModuleToEnvPipeline, pieces, *_single_spaces(config, env, spaces)
    )
    return made


def learner_pipeline(
    config: Any, observation_space: Space, action_space: Space, device: Device
) -> LearnerConnectorPipeline:
    """Return the connectors from episodes to learners; see `env_to_module_pipeline`."""
    pieces = _made("learner_connector", config, observation_space, action_space)
    if config.add_default_connectors_to_learner_pipeline:
        pieces += [
            AddObservationsFromEpisodesToBatch(as_learner_connector=True),
            AddColumnsFromEpisodesToTrainBatch(),
            AddTimeDimToBatchAndZeroPad(as_learner_connector=True),
            AddStatesFromEpisodesToBatch(as_learner_connector=True),
            *_mapping(config, as_learner_connector=True),
            BatchIndividualItems(multi_agent=config.is_multi_agent),
            NumpyToTensor(as_learner_connector=True, device=device),
        ]
    made: LearnerConnectorPipeline = _with_spaces(
        LearnerConnectorPipeline, pieces, observation_space, action_space
    )
    return made


def own_pieces(connectors: Sequence[ConnectorV2]) -> slice:
    """Return the range of the user-defined connectors, between default ones at both ends.

    A subclass of a default connector counts as user-defined.
    """
    places = [place for place, each in enumerate(connectors) if not is_default(each)]
    return slice(places[0], places[-1] + 1) if places else slice(0, 0)


def is_default(connector: ConnectorV2) -> bool:
    """Return True for a default connector; runners and learners do its work on whole columns."""
    return DefaultConnector in type(connector).__bases__


def _preprocessors(config: Any) -> list[ConnectorV2]:
    """Return the custom preprocessor from older releases, or None."""
    given = config.model_config.get("custom_preprocessor")
    if not given:
        return []
    return [PreprocessorConnector(preprocessor_class=given, options=config.model)]


def _previous(config: Any) -> list[ConnectorV2]:
    """Return the connector that adds previous actions and rewards if the memory uses them."""
    given = config.model_config
    actions = int(given.get("attention_use_n_prev_actions") or 0)
    rewards = int(given.get("attention_use_n_prev_rewards") or 0)
    if not given.get("use_attention"):
        actions = int(bool(given.get("lstm_use_prev_action")))
        rewards = int(bool(given.get("lstm_use_prev_reward")))
    if not actions and not rewards:
        return []
    return [
        PrevActionsPrevRewards(
            multi_agent=config.is_multi_agent, n_prev_actions=actions, n_prev_rewards=rewards
        )
    ]


def _single_spaces(config: Any, env: Any, spaces: Any) -> SpacePair:
    """Return the given spaces, or those of one environment."""
    if spaces is not None and SINGLE_SPACES in spaces:
        single: SpacePair = spaces[SINGLE_SPACES]
        return single
    found = []
    for name in ("observation_space", "action_space"):
        space = getattr(config, name)
        if space is None and env is not None:
            space = getattr(env, f"single_{name}", None) or getattr(env, name, None)
        found.append(space)
    return found[0], found[1]


def _mapping(config: Any, **options: Any) -> list[ConnectorV2]:
    if not config.is_multi_agent:
        return []
    return [
        AgentToModuleMapping(
            rl_module_specs=set(config.policies),
            agent_to_module_mapping_fn=config.policy_mapping_fn,
            **options,
        )
    ]


def _with_spaces(
    cls: type, pieces: list[ConnectorV2], observation_space: Space, action_space: Space
) -> Any:
    pipeline: ConnectorPipelineV2 = cls(connectors=pieces)
    pipeline.set_input_spaces(observation_space, action_space)
    return pipeline


def _made(option: str, config: object, *args: object) -> list[ConnectorV2]:
    """Return the connectors created by the function of an option."""
    function = getattr(config, f"_{option}")
    if function is None:
        return []
    made = _call(function, *args)
    pieces = list(made) if isinstance(made, Sequence) else [made]
    for piece in pieces:
        if not isinstance(piece, ConnectorV2):
            raise TypeError(
                f"`{option}` must return a ConnectorV2 or a list of them, but returned {made!r}."
            )
    return pieces


def _call(function: Callable[..., object], *args: object) -> Any:
    """Call a function with as many arguments as it accepts; older functions accept only `env`."""
    parameters = inspect.signature(function).parameters.values()
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return function(*args)
    taken = [
        each
        for each in parameters
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    return function(*args[: len(taken)])
