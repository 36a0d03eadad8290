"""Errors of a search."""

from __future__ import annotations


class TuneError(Exception):
    """A search, or a trial of it, cannot go on; the message says why and what to do."""
