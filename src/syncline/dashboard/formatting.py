"""Formatting of texts, numbers, durations and sizes for pages and commands. Pure.

Not covered: escaping. The browser receives texts as texts, so nothing needs escaping.
"""

from __future__ import annotations

import json
import math
import re
import time

MAX_TEXT_LENGTH = 200_000
"""Maximum characters of a text sent to a browser; the rest is cut with a note."""
_LONG = 5_000
"""Shorter limits, for names and sentences, cut without a note."""
_EXACT = 2**53
"""Largest integer that browsers represent exactly."""
# Control characters except tab and newline, and characters that change the direction of text, with
# which a name could imitate another one.
_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(value: object, longest: int = MAX_TEXT_LENGTH) -> str:
    """Return any value as text that can be sent and read: lone surrogates, control characters and
    direction marks are replaced.
    """
    text = value if isinstance(value, str) else str(value)
    if len(text) > longest:
        text = (
            f"{text[:longest]}…"
            if longest < _LONG
            else f"{text[:longest]}\n… {len(text) - longest} more characters"
        )
    return _UNFIT.sub("\ufffd", text)


def plain_value(value: object) -> str | float | int | bool | None:
    """Return a table cell value: numbers that browsers can represent, None, or text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= _EXACT else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return printable(value, 10_000)


def json_text(value: object) -> str:
    """Format a configuration as JSON."""
    return json.dumps(value, indent=2, default=str, ensure_ascii=False)


def number(value: object) -> str:
    """Format a number in up to five digits, None as "-", anything else as text."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return printable(value, 500)
    if isinstance(value, int):
        return (
            f"{value:,}".replace(",", "\u202f")
            if abs(value) <= _EXACT
            else f"{value:.4e}"
            if abs(value) < 10**300
            else "huge"
        )
    return f"{value:.5g}"


def percent(share: float | None) -> str:
    """Format a share as "93 %"; None as "-"."""
    return "-" if share is None or not math.isfinite(share) else f"{100 * share:.0f} %"


def duration(seconds: float | None) -> str:
    """Format a duration in at most two units: "12 ms", "8.3 s", "5 min 20 s", "3 h 04 min",
    "2 d 5 h"; None as "-".
    """
    if seconds is None or not math.isfinite(seconds):
        return "-"
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest_s = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest_s:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


def ago(when: float | None, now: float | None = None) -> str:
    """Format the time since a moment: "now", "40 s ago", "3 min ago", "2 d ago"; None as "-"."""
    if when is None or not math.isfinite(when):
        return "-"
    passed = max(0.0, (time.time() if now is None else now) - when)
    if passed < 5:
        return "now"
    for limit, unit, length in ((100, "s", 1), (6_000, "min", 60), (172_800, "h", 3_600)):
        if passed < limit:
            return f"{passed / length:.0f} {unit} ago"
    return f"{passed / 86_400:.0f} d ago"


def moment(when: float | None) -> str:
    """Format seconds since the epoch as local date and time; None and invalid values as "-"."""
    if when is None:
        return "-"
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))
    except (ValueError, OverflowError, OSError):
        return "-"


def clock(when: float | None, now: float | None = None) -> str:
    """Format seconds since the epoch as local time, with the date unless it is today's."""
    text = moment(when)
    today = moment(time.time() if now is None else now)[:10]
    return text.removeprefix(f"{today} ")


def size(count_bytes: float | None) -> str:
    """Format bytes in binary units: "512 MiB"; None as "-"."""
    if count_bytes is None or not math.isfinite(count_bytes):
        return "-"
    amount = float(count_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return (
                f"{amount:.0f} {unit}" if amount >= 100 or unit == "B" else f"{amount:.1f} {unit}"
            )
        amount /= 1024
    return f"{amount:.1f} TiB"


def amount(resource: str, value: float) -> str:
    """Format an amount of a resource: memory in binary units, others as a short number."""
    return size(value) if resource.endswith("memory") else f"{value:g}"
