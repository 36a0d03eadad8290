"""Tasks, actor calls and objects through syncline's cluster engine and through Ray, alternating in
one process on one cluster.
"""

import importlib

from bench.programs import actors, common, objects, tasks

# Rounds of about half a second each, long enough for workers to be placed.
ROUNDS = 6
TASKS_ONE, TASKS_MANY = 300, 1000
ACTORS_ONE, ACTORS_MANY = 500, 1500
OBJECTS = 6


def interleaved(name: str, runs: tuple[common.Run, common.Run], count: int) -> common.Values:
    ours, rays = common.interleaved_rates(runs, count, ROUNDS)
    return {name: ours, f"ray_{name}": rays}


if __name__ == "__main__":
    options = common.arguments()
    library, ray = importlib.import_module(options.library), importlib.import_module("ray")
    library.init()  # connects this process to the cluster, for both libraries
    (tasks_one, tasks_many), (ray_tasks_one, ray_tasks_many) = (
        tasks.calls(library),
        tasks.calls(ray),
    )
    values = interleaved("tasks_one_per_s", (tasks_one, ray_tasks_one), TASKS_ONE)
    values |= interleaved("tasks_many_per_s", (tasks_many, ray_tasks_many), TASKS_MANY)
    (actors_one, actors_many), (ray_actors_one, ray_actors_many) = (
        actors.calls(library),
        actors.calls(ray),
    )
    values |= interleaved("actors_one_per_s", (actors_one, ray_actors_one), ACTORS_ONE)
    values |= interleaved("actors_many_per_s", (actors_many, ray_actors_many), ACTORS_MANY)
    stored = interleaved(
        "objects_gb_per_s", (objects.round_trips(library), objects.round_trips(ray)), OBJECTS
    )
    values |= {name: per_s * objects.SIZE_BYTES / 1e9 for name, per_s in stored.items()}
    common.write(options.out, values)
    library.shutdown()
