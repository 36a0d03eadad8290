"""`Algorithm`: the trainable that samples, learns and evaluates.

Files: `algorithm` (the class), `evaluation`,
`checkpoints` (reading and the constructor's arguments).

Also: `acting` (actions for a program),
`connector_states` (connectors of the runners), `sampled_ahead` (the next batch of
on-policy algorithms), `resource_check` (enough CPUs for all
processes), `off_policy`, `offline`.
"""
