"""`nevergrad_search.py`: `NevergradSearch`, a searcher with Nevergrad."""

from syncline.tune.search.nevergrad.nevergrad_search import NevergradSearch

__all__ = ["NevergradSearch"]
