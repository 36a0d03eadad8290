"""The controller of a run: `events` and `state` (what happens, what is to be done; pure),
`barriers` and `policy` (its parts), `driver` (does it), `recorder` and `checkpoints` (what is written
down and kept), `tenure` (by whom), `validation` (functions that run beside training), `live`
(questions from outside), `run_actor`, `story` and `apart` (on a cluster: the controller in a
process of its own, what it tells, the program's side).
"""
