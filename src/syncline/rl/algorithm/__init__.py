"""`Algorithm`: the trainable that samples, learns and evaluates.

Files: `algorithm` (the class), `sampling_results` (results of samples), `evaluation`,
`checkpoints` (reading and the constructor's arguments).

Also: `connector_states` (connectors of the runners), `off_policy`, `offline`.
"""
