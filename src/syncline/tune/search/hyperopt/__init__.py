"""`HyperOptSearch`: suggestions of HyperOpt. The library is imported when a searcher is made, not
here.
"""

from syncline.tune.search.hyperopt.hyperopt_search import HyperOptSearch

__all__ = ["HyperOptSearch"]
