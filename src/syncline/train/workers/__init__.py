"""Training workers, from the reservation of their resources to their messages.

Files, in the order in which a run uses them:

- `reservation` (resources of a group), `spec` (serialized description of the run and of a worker),
  `ranks` (assignment of ranks and GPUs), `group` (starts the workers and reads their messages).
- `worker` (actor that runs the training function), `worker_session` (session behind `report` and
  the other functions), `uploads` (writes checkpoints to the storage), `checkpoint_saver`
  (checkpoints that another process writes from shared memory).
- `messages` (messages between worker and controller), `send_buffer` (messages that the controller
  has not read).
- `hang_watch` (detects stalled collectives, measures how the thread spends its time, dumps stacks),
  `profiling` (profiles of a worker). They run alongside the training function.
"""
