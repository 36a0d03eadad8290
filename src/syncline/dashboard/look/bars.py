"""Bars of shares: what parts something is made of, a row for each thing, one legend for all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from nicegui import ui

from syncline.dashboard.look.charts import PALETTE
from syncline.dashboard.look.parts import Text
from syncline.dashboard.look.text import printable

LEAST_LABELLED = 0.08
"""A part that is smaller has no number on it."""


class ShareBars:
    """One stacked bar in each row, as wide as the page; `set` shows other rows.

    Args:
        parts: What the parts are called, in their order from the left.
        label: What the bars show, for those who do not see them.
    """

    def __init__(self, parts: Sequence[str], *, label: str) -> None:
        self._parts = list(parts)
        self._shown: dict[str, list[float]] = {}
        with ui.element("div").classes("sl-shares") as self.element:
            with ui.element("div").classes("sl-shares-legend"):
                for place, part in enumerate(self._parts):
                    with ui.element("span"):
                        ui.element("i").style(f"background: {PALETTE[place % len(PALETTE)]}")
                        Text("span", part)
            self._rows = ui.element("div").classes("sl-shares-rows")
        self.element.props["role"] = "group"
        self.element.props["aria-label"] = printable(label, 200)

    def set(self, rows: Mapping[str, Sequence[float]]) -> None:
        """Show these rows: by name, a share of 1 for each part."""
        clean = {
            name: [share if math.isfinite(share) and share > 0 else 0.0 for share in shares]
            for name, shares in rows.items()
        }
        if clean == self._shown:
            return
        self._shown = clean
        self._rows.clear()
        with self._rows:
            for name, shares in clean.items():
                self._row(name, shares)

    def _row(self, name: str, shares: Sequence[float]) -> None:
        Text("span", printable(name, 80), "sl-shares-name")
        said = ", ".join(
            f"{part} {share:.0%}" for part, share in zip(self._parts, shares, strict=True)
        )
        with ui.element("div").classes("sl-shares-bar") as bar:
            for place, share in enumerate(shares):
                if share > 0:
                    text = f"{100 * share:.0f} %" if share >= LEAST_LABELLED else ""
                    Text("span", text).style(
                        f"flex-grow: {share:.4f}; background: {PALETTE[place % len(PALETTE)]}"
                    )
        bar.props["role"] = "img"
        bar.props["title"] = bar.props["aria-label"] = printable(f"{name}: {said}", 500)
