"""`TuneBOHB`: suggestions of HpBandSter's BOHB. The library is imported when a searcher is made,
not here.
"""

from syncline.tune.search.bohb.bohb_search import TuneBOHB

__all__ = ["TuneBOHB"]
