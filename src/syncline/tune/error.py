"""Errors of a search."""

from __future__ import annotations


class TuneError(Exception):
    """A search, or a trial of it, cannot continue; the message has the reason and the remedy."""
