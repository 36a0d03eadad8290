"""Controller of a run: a pure state machine, its driver, and the record of the run.

Files, in the order in which a run uses them:

- `events` (events and instructions), `transitions` (states, their transitions, time limits),
  `attempt` (data of one attempt, barriers, failure budgets), `state` (the state machine). All of
  these are pure.
- `name_conflicts` (a run name that is taken).
- `driver` (executes the instructions), `group_starter` (starts worker groups), `run_snapshots`
  (memory snapshots that an attempt starts from), `copy_rounds` (steps of which all ranks copy their
  snapshots to other nodes; pure), `validation` (validation tasks), `live_actions` (stacks, profiles
  and other requests during a run).
- `run_recorder` (writes the run directory), `fencing` (keeps all writers but one out),
  `checkpoint_manager` (retention of checkpoints), `goodput` (share of time spent on training),
  `clock_offsets` (of other nodes), `diagnosis` (the rank that delays or stops the others),
  `callback_runner` (calls the program's callbacks).
- `remote_controller` (the controller as an actor on a cluster), `event_stream` (its events, sent to
  attached programs).
"""
