"""Controller of a run: a pure state machine, its driver, and the record of the run.

Files, in the order in which a run flows through them:

- `events` (events and instructions), `transitions` (states, table, limits), `attempt` (data of an
  attempt, barriers, failure budgets), `outliers` (analysis of hanging ranks), `state` (the state
  machine): pure
- `driver` (executes instructions), `group_starter` (starts worker groups), `validation` (validation
  tasks), `live_actions` (requests about the workers)
- `run_recorder` (writes the run directory), `fencing` (one writer at a time), `checkpoint_manager`
  (retention), `goodput` (time that counts), `callback_runner` (the program's callbacks)
- `remote_controller`, `event_stream` (the controller as an actor on a cluster)
"""
