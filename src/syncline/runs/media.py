"""Images and histograms in reports: their form in records.

A record has `{"_type": "histogram", "counts": […], "edges": […]}` or
`{"_type": "image", "file": "media/NAME.png", "width", "height", "caption"}`. Images are PNG files
in `media/` of the run directory. Records are untrusted: `MediaValue.of` checks the form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from syncline.records import dataclass
from syncline.runs.json_values import finite

TYPE_KEY = "_type"
MAX_BINS = 512
_FILE = re.compile(r"media/[\w.-]{1,200}\.png")


@dataclass(frozen=True, kw_only=True)
class MediaValue:
    """An image or a histogram of one report."""

    file: str = ""
    """Path of the image in the run directory; "" for a histogram."""
    width: int = 0
    height: int = 0
    """Size of the image in pixels."""
    caption: str = ""
    counts: tuple[float, ...] = ()
    """Number of values in each bin of the histogram."""
    edges: tuple[float, ...] = ()
    """Limits of the bins, one more than `counts`."""

    @classmethod
    def of(cls, value: Any) -> MediaValue | None:
        """Return the image or histogram in a value of a report; None for any other value."""
        if not is_media(value):
            return None
        if value[TYPE_KEY] == "image":
            file, width, height = value.get("file"), value.get("width"), value.get("height")
            if not (isinstance(file, str) and _FILE.fullmatch(file)):
                return None
            caption = value.get("caption")
            return cls(
                file=file,
                width=width if isinstance(width, int) else 0,
                height=height if isinstance(height, int) else 0,
                caption=caption[:1_000] if isinstance(caption, str) else "",
            )
        counts, edges = _numbers(value.get("counts")), _numbers(value.get("edges"))
        if not counts or len(edges) != len(counts) + 1:
            return None
        return cls(counts=counts, edges=edges)


def is_media(value: object) -> bool:
    """Return True if a value of a report has the form of an image or a histogram."""
    return isinstance(value, Mapping) and value.get(TYPE_KEY) in ("image", "histogram")


def _numbers(values: object) -> tuple[float, ...]:
    if not isinstance(values, list) or len(values) > MAX_BINS + 1:
        return ()
    found = [finite(value) for value in values]
    return tuple(value for value in found if value is not None) if None not in found else ()
