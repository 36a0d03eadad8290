"""Names of types, for annotations in programs."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from syncline.rl.value_types import (
    AgentDict,
    Batch,
    Env,
    EnvConfig,
    Episode,
    Info,
    Network,
    Options,
    Results,
    Tree,
)
from syncline.rl.value_types import AgentID as AgentID
from syncline.rl.value_types import StateDict as StateDict

EpisodeID = str
PolicyID = str
ModuleID = str
EnvID = int | str
EnvType = Env
EnvObsType = Tree
EnvActionType = Tree
EnvInfoDict = Info
EnvConfigDict = EnvConfig
EnvCreator = Callable[..., Any]
MultiAgentDict = AgentDict[Tree]
MultiEnvDict = dict[EnvID, AgentDict[Tree]]
EpisodeType = Episode
SampleBatchType = Batch
TensorType = Tree
TensorStructType = Tree
SpaceStruct = Any
ResultDict = Results
ModelConfigDict = Options
AlgorithmConfigDict = Options
PartialAlgorithmConfigDict = Options
ModelWeights = StateDict
ModelGradients = Tree
GradInfoDict = Results
LearningRateOrSchedule = float | list[list[float]]
ConvFilterSpec = list[Any]
DeviceType = Any
LocalOptimizer = Any
Optimizer = Any
Param = Any
ParamDict = dict[Any, Any]
ParamList = list[Tree]
ParamRef = Any
NamedParamDict = Batch
LossTensorDict = Batch
RLModuleSpecType = Any
AgentToModuleMappingFn = Callable[..., str]
ShouldModuleBeUpdatedFn = Callable[..., bool]
PolicyState = StateDict
FileType = Any
FromConfigSpec = Any
NetworkType = Network
UniqueId = Hashable
ViewRequirementsDict = Options
EpisodeIDs = list[str]
