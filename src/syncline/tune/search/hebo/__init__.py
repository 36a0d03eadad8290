"""`HEBOSearch`: suggestions of HEBO. The library is imported when a searcher is made, not here."""

from syncline.tune.search.hebo.hebo_search import HEBOSearch

__all__ = ["HEBOSearch"]
