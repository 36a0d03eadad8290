"""Training workers.

Files, in the order in which data flows: `reservation` (resources of a group), `spec` (what a run
and a worker are), `ranks` (assignment of ranks and GPUs), `group` (starts workers, reads their
messages), `worker` (the actor), `worker_session` (behind `report`), `uploads` (checkpoints to the
storage), `send_buffer`, `messages` (between worker and controller); beside the training function
`hang_watch` (stalled collectives, stacks), `rank_log` (output), `profiling/` (profiles).
"""
