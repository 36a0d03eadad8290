"""Conformance suites: pytest tests that every engine must pass. Use them in a test module:

    from syncline.testing import conformance

    TRAITS = conformance.EngineTraits(processes=True, parallel=True)
    globals().update(conformance.tests_for_engine({}, traits=TRAITS))

`suite` has the base class and the fixture. The topics are `tasks`, `generators`, `objects`,
`actors`, `async_actors`, `errors`, `cancelling`, `resources`, `placement`, `environments`,
`machine`, `listings`, `state`, `graphs`, `utilities`, `pools`, `iterators`, `torch_collectives`,
`shared_values`, `metrics`, `crashes` and `terminating`. Not covered: features of a single engine,
such as the moment at which memory is freed.
"""

from __future__ import annotations

from typing import Any

from syncline.testing.conformance.actors import ActorLives, Actors, ThreadedActors
from syncline.testing.conformance.async_actors import AsyncActors
from syncline.testing.conformance.cancelling import Cancelling, CancellingTheEnded
from syncline.testing.conformance.crashes import ActorCrashes, TaskCrashes
from syncline.testing.conformance.environments import Environments
from syncline.testing.conformance.errors import Errors, Exits
from syncline.testing.conformance.generators import ActorGenerators, Generators
from syncline.testing.conformance.graphs import AwaitedGraphs, Graphs
from syncline.testing.conformance.iterators import (
    CompletedInParallel,
    CompletedTasks,
    ParallelIterators,
)
from syncline.testing.conformance.listings import Listings
from syncline.testing.conformance.machine import Machine
from syncline.testing.conformance.metrics import Metrics
from syncline.testing.conformance.objects import Objects, Waiting, WaitingForWork
from syncline.testing.conformance.placement import PlacementGroups
from syncline.testing.conformance.pools import JoblibBackends, ProcessPools
from syncline.testing.conformance.resources import (
    HeldResources,
    LibraryThreads,
    ResourceBooks,
    VisibleGpus,
)
from syncline.testing.conformance.shared_values import Serializers, SharedKeyValues
from syncline.testing.conformance.state import FreedValues, RemoteNames, StateApi
from syncline.testing.conformance.suite import EngineOptions, EngineTraits, Suite, tests_for
from syncline.testing.conformance.tasks import NestedTasks, ParallelTasks, Retries, Tasks
from syncline.testing.conformance.terminating import Terminating
from syncline.testing.conformance.torch_collectives import CollectiveGraphs, Collectives
from syncline.testing.conformance.utilities import ActorPools, PoolsOfMortals, Queues

__all__ = ["SUITES", "EngineTraits", "Suite", "tests_for", "tests_for_engine"]

SUITES: tuple[type[Suite], ...] = (
    Tasks,
    NestedTasks,
    Retries,
    ParallelTasks,
    Generators,
    ActorGenerators,
    Objects,
    Waiting,
    WaitingForWork,
    Actors,
    ActorLives,
    ThreadedActors,
    AsyncActors,
    Errors,
    Exits,
    CancellingTheEnded,
    Cancelling,
    ResourceBooks,
    VisibleGpus,
    HeldResources,
    LibraryThreads,
    PlacementGroups,
    Environments,
    Machine,
    Listings,
    StateApi,
    FreedValues,
    RemoteNames,
    Graphs,
    AwaitedGraphs,
    ActorPools,
    PoolsOfMortals,
    Queues,
    ProcessPools,
    JoblibBackends,
    ParallelIterators,
    CompletedTasks,
    CompletedInParallel,
    SharedKeyValues,
    Serializers,
    Collectives,
    CollectiveGraphs,
    Metrics,
    TaskCrashes,
    ActorCrashes,
    Terminating,
)


def tests_for_engine(engine_options: EngineOptions, *, traits: EngineTraits) -> dict[str, Any]:
    """Return all suites for the engine that `init(**engine_options)` starts, as module names."""
    # Sorted by machine, so that consecutive suites can share a cluster.
    return tests_for(
        engine_options,
        traits=traits,
        suites=sorted(SUITES, key=lambda suite: repr(suite.init_options)),
    )
