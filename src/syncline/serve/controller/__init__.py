"""The controller of serve: decides which replicas and proxies run, and publishes where they are.

Programs and processes send `messages` to the actor, whose functions are in `process`. Its
`controller_thread` runs the event loop of `driver`, which turns them into `events`, executes the
instructions with `actors` and `actor_starts` (replicas and proxies), `deployment_actor_driver`
(actors that replicas share) and `listening_sockets` (HTTP sockets that outlive proxies), answers
`requests` later where they wait for a state, and writes a `snapshot`.

Decisions are pure: `state` (the state machine; `step` is shared by its parts while they handle one
event) with `application_state`, `deployment_state` (`rollout`: what starts and stops next;
`replica_set` and `replica_state`: each replica; `deployment_actor_state`: actors that replicas
share), `scaling` with `autoscaler` and `load_window`, `proxy_state`, `routing_table`, `deadlines`;
`saved_state` (for snapshots), `deployment_status` and `views` (for users).
"""
