"""`hyperopt_search.py`: `HyperOptSearch`, a searcher with HyperOpt."""

from syncline.tune.search.hyperopt.hyperopt_search import HyperOptSearch

__all__ = ["HyperOptSearch"]
