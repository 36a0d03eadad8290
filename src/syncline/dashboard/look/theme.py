"""The frame of every page: colours, the head with its navigation, and where the contents go.

Light or dark follows the system, until the switch in the head says otherwise; the browser remembers
that, the server does not know. The keyboard: Tab goes round with a visible focus, the first stop
skips the head, `/` goes to the filter of a page where there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from nicegui import ui

from syncline.dashboard.look.parts import Text
from syncline.dashboard.look.text import printable

_HERE = Path(__file__).parent
PLACES = (("Runs", "/"), ("Cluster", "/cluster"))


@cache
def head_html() -> str:
    """Style and script of every page: files of this package, nothing else."""
    style, script = (
        (_HERE / name).read_text(encoding="utf-8") for name in ("style.css", "script.js")
    )
    return f"<style>{style}</style>\n<script>{script}</script>"


@contextmanager
def frame(title: str, *, place: str = "", wide: bool = False) -> Iterator[None]:
    """The page around what is made inside.

    Args:
        title: Of the browser's tab.
        place: The address of the navigation that this page belongs to.
        wide: Whether the contents may use the whole width of the window.
    """
    ui.page_title(printable(f"{title} · syncline", 120))
    ui.context.client.content.classes("sl-page")
    with ui.header(fixed=True, wrap=False).classes("sl-head"):
        ui.link("syncline", "/").classes("sl-brand")
        with ui.element("nav").props('aria-label="Main"').classes("sl-nav"):
            for label, address in PLACES:
                made = ui.link(label, address)
                if address == place:
                    made.props["aria-current"] = "page"
        ui.element("div").classes("sl-grow")
        with (
            ui.element("button").props('type="button" id="sl-theme"').classes("sl-theme") as switch
        ):
            for mode, sign in (("system", "◐"), ("light", "☀"), ("dark", "☾")):
                with ui.element("span").classes(f"sl-mode-{mode}"):
                    Text("span", sign).props["aria-hidden"] = "true"
                    Text("span", mode, "sl-mode-name")
        switch.props["aria-label"] = "Switch between the system's colours, light and dark"
        switch.on("click", js_handler="() => slNextTheme()")
    with ui.element("div").classes(
        "sl-main sl-wide" if wide else "sl-main"
    ) as main:  # the framework has put a <main> around everything
        yield
    ui.skip_link("Skip to the contents", target=main)
