"""`ZOOptSearch`: suggestions of ZOOpt. The library is imported when a searcher is made, not
here.
"""

from syncline.tune.search.zoopt.zoopt_search import ZOOptSearch

__all__ = ["ZOOptSearch"]
