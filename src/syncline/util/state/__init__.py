"""The state API: lists of actors, tasks, objects, nodes, jobs, workers and placement groups.

`list_actors(filters=[("state", "=", "ALIVE")])` returns objects of `ActorState`, whose attributes
are also keys. The program's engine answers; it needs no dashboard. One machine remembers the last
20 000 executions of tasks and the last 1000 ended actors; a cluster as many as Ray's head does.

Files: `api`: the functions and `StateApiClient`; `common`: classes of rows and options;
`summaries`: counts; `logs`: log files of workers; `exception`: errors.
"""

from syncline.util.state.api import (
    StateApiClient,
    get_actor,
    get_job,
    get_log,
    get_node,
    get_objects,
    get_placement_group,
    get_task,
    get_worker,
    list_actors,
    list_cluster_events,
    list_jobs,
    list_logs,
    list_nodes,
    list_objects,
    list_placement_groups,
    list_runtime_envs,
    list_tasks,
    list_workers,
    summarize_actors,
    summarize_objects,
    summarize_tasks,
)

__all__ = [
    "StateApiClient",
    "get_actor",
    "get_job",
    "get_log",
    "get_node",
    "get_objects",
    "get_placement_group",
    "get_task",
    "get_worker",
    "list_actors",
    "list_cluster_events",
    "list_jobs",
    "list_logs",
    "list_nodes",
    "list_objects",
    "list_placement_groups",
    "list_runtime_envs",
    "list_tasks",
    "list_workers",
    "summarize_actors",
    "summarize_objects",
    "summarize_tasks",
]
