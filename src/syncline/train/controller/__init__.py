"""The controller of a run: `events` and `state` (what happens, what is to be done; pure), `barriers` and `policy` (its parts), `driver`
(does it), `ledger` and `checkpoints` (what is written down and kept), `validation` (functions that run beside training)."""
