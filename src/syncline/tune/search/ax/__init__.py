"""`AxSearch`: suggestions of Ax. The library is imported when a searcher is made, not here."""

from syncline.tune.search.ax.ax_search import AxSearch

__all__ = ["AxSearch"]
