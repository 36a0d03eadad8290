"""Processes of trials: `messages` (commands of the controller and their outcomes), `reservations`
(placement groups), `pool` (processes), `batches` (short trials that share a process),
`trial_runner` (the actor that hosts a trainable), `own_time` (time without waiting for a core),
`output_label` (label of the output), `isolation` (the state that one trial may leave behind for the
next one in its process).
"""
