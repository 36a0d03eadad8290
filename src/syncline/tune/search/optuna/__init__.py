"""`optuna_search.py`: `OptunaSearch`, a searcher with Optuna."""

from syncline.tune.search.optuna.optuna_search import OptunaSearch

__all__ = ["OptunaSearch"]
