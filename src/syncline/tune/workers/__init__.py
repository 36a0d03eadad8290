"""Processes of trials: `messages` (commands of the controller and their outcomes), `reservations`
(placement groups), `pool` (processes), `trial_runner` (the actor that hosts a trainable).
"""
