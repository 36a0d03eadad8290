"""`syncline.types`: types for annotations."""

from syncline.core.refs import ObjectRef

__all__ = ["ObjectRef"]
