"""`BayesOptSearch`: suggestions of bayesian-optimization. The library is imported when a searcher
is made, not here.
"""

from syncline.tune.search.bayesopt.bayesopt_search import BayesOptSearch

__all__ = ["BayesOptSearch"]
