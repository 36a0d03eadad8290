"""`zoopt_search.py`: `ZOOptSearch`, a searcher with ZOOpt."""

from syncline.tune.search.zoopt.zoopt_search import ZOOptSearch

__all__ = ["ZOOptSearch"]
