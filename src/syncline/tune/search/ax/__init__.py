"""`ax_search.py`: `AxSearch`, a searcher with Ax."""

from syncline.tune.search.ax.ax_search import AxSearch

__all__ = ["AxSearch"]
