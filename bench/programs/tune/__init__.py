"""Searches: trials that do next to nothing, a search that is killed, a population, and what
samplers and schedulers find.

- `searches.py`               one way to search with syncline and with Ray Tune
- `trials.py`                 trials that only report, few and many
- `trials_optuna.py`          the same in Optuna, in one process
- `turnover.py`               from a trial's end to its successor's first step
- `restore.py`                a search that is killed after many trials, and goes on
- `population.py`             population-based training of a small network
- `rehearsal.py`              a search without processes: syncline's controller, carried out at once
- `controller_simulation.py`  that controller alone, with few trials and with many
- `functions.py`              functions whose minimum is known
- `quality.py`                how near to these minima samplers and schedulers come, ours and Optuna's
"""
