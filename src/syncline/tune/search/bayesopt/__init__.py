"""`bayesopt_search.py`: `BayesOptSearch`, a searcher with bayesian-optimization."""

from syncline.tune.search.bayesopt.bayesopt_search import BayesOptSearch

__all__ = ["BayesOptSearch"]
