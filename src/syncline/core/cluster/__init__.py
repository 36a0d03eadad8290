"""The engine for many machines: Ray Core's tasks, actors, objects and placement groups.

Files in the order in which a program uses them:

- `start`: connect to a cluster or start one; enter a Ray worker.
- `head`: address, token and compatibility of the head (`grpc_call`: one call to it;
  `token_sources`: where tokens are, without Ray; `compatibility`: versions and class tables).
- `health`: detect the loss of the cluster.
- `engine`: the `Engine`; `ray_client`: the engine through Ray Client.
- `ray_options`: options as Ray's keywords; `feasibility`: demands that can never be satisfied.
- `handles`: references and holds that contain Ray's own; `placement_groups`; `key_values`.
- `ray_workers`: functions and classes that run in Ray's workers.
- `ray_errors`: Ray's errors as ours.
- `cluster_state`: the calling code's ids, listings and the timeline; `state_tables`: rows of the
  state API.
- `cluster_utils`: several nodes on this machine, for tests of programs.

No other module of syncline imports `ray`. Ray serializes values: cloudpickle, with arrays and Arrow
buffers in shared memory. docs/engines.md lists the limits of Ray.
"""
