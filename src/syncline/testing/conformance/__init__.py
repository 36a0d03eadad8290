"""What every engine does, as pytest suites. An engine's test module takes them all in:

    from syncline.testing import conformance

    TRAITS = conformance.EngineTraits(processes=True, parallel=True)
    globals().update(conformance.tests_for_engine({}, traits=TRAITS))

`suite` holds what they have in common; the topics are `tasks`, `generators`, `objects`, `actors`,
`async_actors`, `errors`, `cancelling`, `resources`, `placement`, `environments`, `machine`,
`listings`, `utilities`, `crashes` and `terminating`. Not covered: what only one engine has, such as
when exactly memory is freed.
"""

from __future__ import annotations

from typing import Any

from syncline.testing.conformance.actors import ActorLives, Actors, ThreadedActors
from syncline.testing.conformance.async_actors import AsyncActors
from syncline.testing.conformance.cancelling import Cancelling, CancellingTheEnded
from syncline.testing.conformance.crashes import ActorCrashes, TaskCrashes
from syncline.testing.conformance.environments import Environments
from syncline.testing.conformance.errors import Errors
from syncline.testing.conformance.generators import ActorGenerators, Generators
from syncline.testing.conformance.listings import Listings
from syncline.testing.conformance.machine import Machine
from syncline.testing.conformance.objects import Objects, Waiting, WaitingForWork
from syncline.testing.conformance.placement import PlacementGroups
from syncline.testing.conformance.resources import HeldResources, ResourceBooks, VisibleGpus
from syncline.testing.conformance.suite import EngineOptions, EngineTraits, Suite, tests_for
from syncline.testing.conformance.tasks import NestedTasks, ParallelTasks, Retries, Tasks
from syncline.testing.conformance.terminating import Terminating
from syncline.testing.conformance.utilities import ActorPools, Queues

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
    CancellingTheEnded,
    Cancelling,
    ResourceBooks,
    VisibleGpus,
    HeldResources,
    PlacementGroups,
    Environments,
    Machine,
    Listings,
    ActorPools,
    Queues,
    TaskCrashes,
    ActorCrashes,
    Terminating,
)


def tests_for_engine(engine_options: EngineOptions, *, traits: EngineTraits) -> dict[str, Any]:
    """Every suite for the engine that `init` starts with `engine_options`, as names for a test
    module.
    """
    # Those that ask for the same machine follow each other, so that a cluster can serve them all.
    return tests_for(
        engine_options,
        traits=traits,
        suites=sorted(SUITES, key=lambda suite: repr(suite.init_options)),
    )
