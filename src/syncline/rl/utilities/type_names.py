"""Names of types, for annotations in programs."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from syncline.rl.value_types import StateDict as StateDict

AgentID = Hashable
EpisodeID = str
PolicyID = str
ModuleID = str
EnvID = int | str
EnvType = Any
EnvObsType = Any
EnvActionType = Any
EnvInfoDict = dict[str, Any]
EnvConfigDict = dict[str, Any]
EnvCreator = Callable[..., Any]
MultiAgentDict = dict[Any, Any]
MultiEnvDict = dict[Any, dict[Any, Any]]
EpisodeType = Any
SampleBatchType = Any
TensorType = Any
TensorStructType = Any
SpaceStruct = Any
ResultDict = dict[str, Any]
ModelConfigDict = dict[str, Any]
AlgorithmConfigDict = dict[str, Any]
PartialAlgorithmConfigDict = dict[str, Any]
ModelWeights = dict[str, Any]
ModelGradients = Any
GradInfoDict = dict[str, Any]
LearningRateOrSchedule = float | list[list[float]]
ConvFilterSpec = list[Any]
DeviceType = Any
LocalOptimizer = Any
Optimizer = Any
Param = Any
ParamDict = dict[Any, Any]
ParamList = list[Any]
ParamRef = Any
NamedParamDict = dict[str, Any]
LossTensorDict = dict[str, Any]
RLModuleSpecType = Any
AgentToModuleMappingFn = Callable[..., str]
ShouldModuleBeUpdatedFn = Callable[..., bool]
PolicyState = dict[str, Any]
FileType = Any
FromConfigSpec = Any
NetworkType = Any
UniqueId = Any
ViewRequirementsDict = dict[str, Any]
EpisodeIDs = list[str]
