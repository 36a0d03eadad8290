"""Searches: short trials, a killed search, a population, and the quality of samplers and
schedulers.

- `searches.py`               one way to search with syncline and with Ray Tune
- `trials.py`                 trials that only report, few and many
- `trials_optuna.py`          the same in Optuna, in one process
- `turnover.py`               from a trial's end to its successor's first line
- `restore.py`                a search that is killed after many trials and restored
- `population.py`             population-based training of a small network
- `simulated_search.py`       a search without processes, with syncline's controller
- `controller_simulation.py`  that controller alone, with few and with many trials
- `functions.py`              functions with known minima
- `quality.py`                regret of searches, syncline's and Optuna's
"""
