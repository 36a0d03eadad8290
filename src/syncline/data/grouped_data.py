"""`GroupedData` under the name that Ray's programs import it from; it lives in `grouped`."""

from syncline.data.grouped import GroupedData

__all__ = ["GroupedData"]
