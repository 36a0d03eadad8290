"""`OptunaSearch`: suggestions of Optuna. The library is imported when a searcher is made, not
here.
"""

from syncline.tune.search.optuna.optuna_search import OptunaSearch

__all__ = ["OptunaSearch"]
