"""`NevergradSearch`: suggestions of Nevergrad. The library is imported when a searcher is made, not
here.
"""

from syncline.tune.search.nevergrad.nevergrad_search import NevergradSearch

__all__ = ["NevergradSearch"]
