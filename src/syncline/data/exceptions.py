"""Errors of datasets, under the name that Ray's programs import them from; they are those of
`syncline.exceptions`.
"""

from syncline.exceptions import UserCodeException

__all__ = ["UserCodeException"]
