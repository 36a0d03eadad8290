"""`bohb_search.py`: `TuneBOHB`, a searcher with HpBandSter."""

from syncline.tune.search.bohb.bohb_search import TuneBOHB

__all__ = ["TuneBOHB"]
