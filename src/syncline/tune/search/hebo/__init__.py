"""`hebo_search.py`: `HEBOSearch`, a searcher with HEBO."""

from syncline.tune.search.hebo.hebo_search import HEBOSearch

__all__ = ["HEBOSearch"]
