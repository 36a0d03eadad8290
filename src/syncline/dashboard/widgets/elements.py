"""Elements of a page: frame with navigation, sections, facts, badges, notes, text, actions.

Light or dark mode follows the system unless the visitor selects one; the browser stores the choice.
Keyboard: Tab moves a visible focus, the first stop skips the header, `/` focuses the filter.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from syncline.dashboard.formatting import number, printable
from syncline.dashboard.security import PAGE_KEY

STATES = frozenset(
    {
        "running",
        "finished",
        "errored",
        "killed",
        "aborted",
        "unreadable",
        "pending",
        "paused",
        "alive",
        "dead",
        "healthy",
        "unhealthy",
        "deploy failed",
        "deploying",
        "updating",
        "upscaling",
        "downscaling",
        "deleting",
    }
)
"""States with a color of their own."""
WITHOUT_KEY = (
    "This browser does not have the key for actions: open the printed URL with the token again."
)
ANSWER_S = 5.0
"""Seconds that a page may take to answer the server."""
WITHOUT_TOKEN = "To enable actions, open the URL with the token that `syncline dashboard` printed."


class Text(TextElement):
    """HTML element that contains only text.

    Args:
        tag: Tag name: "p", "h2", "code", …
        text: Text.
        classes: CSS classes.
    """

    def __init__(self, tag: str, text: object = "", classes: str = "") -> None:
        super().__init__(tag=tag, text=printable(text))
        if classes:
            self.classes(classes)

    def put(self, text: object) -> None:
        """Replace the text; send nothing if it is unchanged."""
        clean = printable(text)
        if clean != self.text:
            self.set_text(clean)

    def show(self, text: object) -> None:
        """Replace the text; hide the element if it is empty."""
        self.put(text)
        self.visible = bool(self.text)


@contextmanager
def section(
    title: str, description: str = "", *, anchor: str | None = None
) -> Iterator[ui.element]:
    """Create a section with a heading; elements created in the context belong to it.

    Args:
        title: Heading.
        description: Sentence below the heading.
        anchor: Fragment of URLs that lead here: `#workers`.
    """
    with ui.element("section").classes("sl-section") as element:
        heading = Text("h2", title)
        if anchor:
            heading.props["id"] = anchor
        if description:
            Text("p", description, "sl-soft")
        yield element


class Facts:
    """Row of labels with values, which wraps. Labels appear with their first value.

    Args:
        hints: Explanations by label, shown under the mouse.
        hint: Explanation of the other labels.
    """

    def __init__(self, hints: Mapping[str, str] | None = None, hint: str = "") -> None:
        self._hints = hints or {}
        self._hint = hint
        self._values: dict[str, Text] = {}
        self._element = ui.element("dl").classes("sl-facts")

    def set(self, values: Mapping[str, object]) -> None:
        """Replace the values of these labels; whole numbers are formatted."""
        for label, value in values.items():
            if label not in self._values:
                with self._element, ui.element("div").classes("sl-fact") as fact:
                    Text("dt", label)
                    self._values[label] = Text("dd")
                if hint := self._hints.get(label, self._hint):
                    fact.props["title"] = printable(hint)
            self._values[label].put(number(value) if isinstance(value, int) else value)


class ProgressBar:
    """Bar with a sentence; hidden without progress.

    Args:
        label: Description for screen readers.
    """

    def __init__(self, label: str) -> None:
        with ui.element("div").classes("sl-progress") as self.element:
            self._bar = ui.element("progress")
            self._bar.props["aria-label"] = label
            self._bar.props["max"] = 1
            self._text = Text("span", "", "sl-soft")
        self.element.visible = False

    def set(self, share: float | None, text: str = "") -> None:
        """Show a share between 0 and 1 and a sentence; None hides the bar."""
        self.element.visible = share is not None
        self._text.put(text)
        if share is not None and self._bar.props.get("value") != share:
            self._bar.props["value"] = share
            self._bar.update()


class StateBadge:
    """Name of a state on a colored badge."""

    def __init__(self) -> None:
        self._text = Text("span", "", "sl-badge")
        self._text.props["data-state"] = "other"

    def set(self, state: str) -> None:
        """Replace the state."""
        if state != self._text.text:
            self._text.put(state)
            self._text.props["data-state"] = state if state in STATES else "other"
            self._text.update()


class Mono:
    """Preformatted text in a scrolling box: logs, tracebacks, configuration.

    Args:
        text: Text.
        label: Description for screen readers.
        tall: Allow most of the window's height instead of a third.
    """

    def __init__(self, text: object = "", *, label: str = "text", tall: bool = False) -> None:
        self.element = Text("pre", text, "sl-mono sl-tall" if tall else "sl-mono")
        self.element.props["tabindex"] = "0"
        self.element.props["role"] = "region"
        self.element.props["aria-label"] = printable(label, 200)

    def set(self, text: object) -> None:
        """Replace the text; keep the scroll position."""
        self.element.put(text)


def note(text: object, kind: str = "info") -> Text:
    """Create a highlighted sentence. `kind`: "info", "warning" or "error"."""
    made = Text("p", text, f"sl-note sl-note-{kind}")
    if kind == "error":
        made.props["role"] = "alert"
    return made


def link(text: object, address: str, *, new_tab: bool = False) -> ui.link:
    """Create a link to a URL of the dashboard; quote parts of the URL that come from a run."""
    return ui.link(printable(text, 500), address, new_tab=new_tab).classes("sl-link")


def button(
    label: str, handler: Callable[[], object] | None, *, icon: str | None = None, flat: bool = False
) -> ui.button:
    """Create a button."""
    made: ui.button = (
        ui.button(label, icon=icon, on_click=handler)
        .props("no-caps dense flat" if flat else "no-caps dense outline")
        .classes("sl-action")
    )
    return made


def toggle(options: dict[str, str], value: str, handler: Callable[[], object]) -> ui.toggle:
    """Create a group of buttons with one selected; `options` maps values to labels."""
    made: ui.toggle = ui.toggle(options, value=value, on_change=handler).props(
        "no-caps dense unelevated"
    )
    return made


def choice(
    label: str, options: dict[str, str], value: str, handler: Callable[[], object]
) -> ui.select:
    """Create a select field in a bar; `options` maps values to labels."""
    made: ui.select = (
        ui.select(options, value=value, on_change=handler)
        .props("outlined dense options-dense")
        .classes("sl-choice")
    )
    made.props["aria-label"] = label
    return made


def filter_field(
    label: str, placeholder: str, handler: Callable[[], object], value: str = ""
) -> ui.input:
    """Create the filter field of a page, which the key `/` focuses."""
    made: ui.input = (
        ui.input(placeholder=f"{placeholder}   ( / )", value=value, on_change=handler)
        .props('outlined dense clearable debounce="150" type="search" maxlength="200"')
        .props("data-sl-filter")
        .classes("sl-field")
    )
    made.props["aria-label"] = label
    return made


def action(
    label: str, handler: Callable[[], Awaitable[None] | None], may_act: bool, *, hint: str = ""
) -> ui.button:
    """Create a button that acts on a run. Without the token it is disabled and has no handler. With
    it, the page must present its key at each click (see `security`).
    """

    async def act() -> None:
        if not await _has_key():
            ui.notify(WITHOUT_KEY, type="warning", multi_line=True)
            return
        done = handler()
        if done is not None:
            await done

    made = button(label, act if may_act else None)
    if hint or not may_act:
        made.props["title"] = hint if may_act else WITHOUT_TOKEN
    made.set_enabled(may_act)
    return made


async def _has_key() -> bool:
    """Return True if the visitor's page has the key for actions."""
    client = ui.context.client
    wanted = client.request.scope.get(PAGE_KEY)
    try:
        given = await client.run_javascript("return slKey()", timeout=ANSWER_S)
    except TimeoutError:
        return False
    return (
        isinstance(wanted, str)
        and isinstance(given, str)
        and hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())
    )


def read_only_note(may_act: bool) -> None:
    """Explain above disabled actions why they are disabled."""
    if not may_act:
        note(WITHOUT_TOKEN)


class Expandable:
    """Collapsible block: `with Expandable("Environment"): …`. Collapsed by default."""

    def __init__(self, title: object, *, opened: bool = False) -> None:
        self.element = ui.element("details").classes("sl-details")
        if opened:
            self.element.props["open"] = True
        with self.element:
            Text("summary", title)

    def __enter__(self) -> Expandable:
        self.element.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self.element.__exit__()


_HERE = Path(__file__).parent
PLACES = (("Runs", "/"), ("Serving", "/serving"), ("Cluster", "/cluster"))


@cache
def head_html() -> str:
    """Return style and script of every page."""
    style, script = (
        (_HERE / name).read_text(encoding="utf-8") for name in ("style.css", "script.js")
    )
    return f"<style>{style}</style>\n<script>{script}</script>"


@contextmanager
def frame(title: str, *, place: str = "", wide: bool = False) -> Iterator[None]:
    """Create the page frame around the elements of the context.

    Args:
        title: Title of the browser tab.
        place: URL of the navigation entry of this page.
        wide: Use the whole width of the window.
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
        switch.props["aria-label"] = "Switch between system, light and dark colors"
        switch.on("click", js_handler="() => slNextTheme()")
    # The framework already provides a <main> element.
    with ui.element("div").classes("sl-main sl-wide" if wide else "sl-main") as main:
        yield
    ui.skip_link("Skip to content", target=main)
