"""Errors of the state API."""

from __future__ import annotations


class RayStateApiException(Exception):
    """The state could not be listed."""


class ServerUnavailable(RayStateApiException):
    """The cluster did not answer."""


class DataSourceUnavailable(Exception):
    """The engine keeps no list of a resource."""


class InvalidFilterError(RayStateApiException, ValueError):
    """A filter has an unknown column or predicate."""
