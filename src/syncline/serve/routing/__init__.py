"""Calls from a process to replicas.

- `controller_connection`: the connection to the controller, which sends the routing table.
- `router`: the choice of a replica for each call of one deployment (pure).
- `custom_router`: the same with the user's request router, which `request_router_driver` runs.
- `load_changes`: the counts of calls for autoscaling.
- `link`: the calls of a process, on an event loop. `thread_link`: the same for many threads;
  `loop_reader`: event loops of a program that await answers.
- `process_link`: the link that handles of this process use.
"""
