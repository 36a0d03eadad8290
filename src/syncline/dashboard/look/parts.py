"""The parts of a page: sections, facts, badges, notes, preformatted text, actions. Each takes any
text and shows it as text.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from syncline.dashboard.look.text import printable
from syncline.dashboard.security import PAGE_KEY

STATES = frozenset(
    {
        "running",
        "finished",
        "errored",
        "killed",
        "aborted",
        "failed",
        "unreadable",
        "pending",
        "paused",
        "alive",
        "dead",
    }
)
"""States that have a colour of their own; all others look neutral."""
WITHOUT_KEY = "This browser does not have the key to actions: open the dashboard once more by the address with the token that was printed."
ANSWER_S = 5.0
"""How long a page may take to answer a question of the server."""
WITHOUT_TOKEN = "To act on runs, open the dashboard by the address with the token that `syncline dashboard` printed."


class Text(TextElement):
    """An HTML element with nothing but text in it.

    Args:
        tag: Its name: "p", "h2", "code", …
        text: What it says.
        classes: CSS classes.
    """

    def __init__(self, tag: str, text: object = "", classes: str = "") -> None:
        super().__init__(tag=tag, text=printable(text))
        if classes:
            self.classes(classes)

    def put(self, text: object) -> None:
        """Say something else; nothing is sent if it is the same."""
        clean = printable(text)
        if clean != self.text:
            self.set_text(clean)


@contextmanager
def section(
    title: str, description: str = "", *, anchor: str | None = None
) -> Iterator[ui.element]:
    """A part of a page with a heading, on a panel of its own; what is made inside lies in it.

    Args:
        title: The heading.
        description: A sentence below it.
        anchor: Name for addresses that lead here: `#workers`.
    """
    with ui.element("section").classes("sl-section") as element:
        heading = Text("h2", title)
        if anchor:
            heading.props["id"] = anchor
        if description:
            Text("p", description, "sl-soft")
        yield element


@contextmanager
def facts() -> Iterator[ui.element]:
    """A row of `Fact`s, as many beside one another as fit."""
    with ui.element("dl").classes("sl-facts") as element:
        yield element


class Fact:
    """A label and its value; made inside `facts()`."""

    def __init__(self, label: str, value: object = "-", *, hint: str = "") -> None:
        with ui.element("div").classes("sl-fact") as self.element:
            Text("dt", label)
            self._value = Text("dd", value)
        if hint:
            self.element.props["title"] = printable(hint)

    def set(self, value: object) -> None:
        """Show another value."""
        self._value.put(value)


class StateBadge:
    """A state by name and colour."""

    def __init__(self, state: str = "") -> None:
        self._text = Text("span", state, "sl-badge")
        self._text.props["data-state"] = state if state in STATES else "other"

    def set(self, state: str) -> None:
        """Show another state."""
        if state != self._text.text:
            self._text.put(state)
            self._text.props["data-state"] = state if state in STATES else "other"
            self._text.update()


class Mono:
    """Preformatted text in a box that scrolls: logs, tracebacks, configuration.

    Args:
        text: What it shows.
        label: What it is, for those who do not see it.
        tall: Whether it may take most of the window's height instead of a third.
    """

    def __init__(self, text: object = "", *, label: str = "text", tall: bool = False) -> None:
        self.element = Text("pre", text, "sl-mono sl-tall" if tall else "sl-mono")
        self.element.props["tabindex"] = "0"
        self.element.props["role"] = "region"
        self.element.props["aria-label"] = printable(label, 200)

    def set(self, text: object) -> None:
        """Show another text; where the box is scrolled to stays."""
        self.element.put(text)


def note(text: object, kind: str = "info") -> Text:
    """A sentence that stands out. `kind`: "info", "warning" or "error"."""
    made = Text("p", text, f"sl-note sl-note-{kind}")
    if kind == "error":
        made.props["role"] = "alert"
    return made


def link(text: object, address: str, *, new_tab: bool = False, classes: str = "") -> ui.link:
    """A link to an address that the dashboard made: parts that come from a run must be quoted in
    it.
    """
    return ui.link(printable(text, 500), address, new_tab=new_tab).classes(f"sl-link {classes}")


def action(
    label: str,
    handler: Callable[[], Awaitable[None] | None],
    may_act: bool,
    *,
    icon: str | None = None,
    hint: str = "",
) -> ui.button:
    """A button that does something to a run. Without the right to act it is grey, and nothing
    listens to it; with it, the page has to show with each press that it came from the address with
    the token (see `security`).
    """

    async def act() -> None:
        if not await _has_key():
            ui.notify(WITHOUT_KEY, type="warning", multi_line=True)
            return
        done = handler()
        if done is not None:
            await done

    made = (
        ui.button(label, icon=icon, on_click=act if may_act else None)
        .props("no-caps outline dense")
        .classes("sl-action")
    )
    if hint or not may_act:
        made.props["title"] = hint if may_act else WITHOUT_TOKEN
    made.set_enabled(may_act)
    return made


async def _has_key() -> bool:
    """Whether the present visitor's page knows what it must know to act."""
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
    """Above actions: why they are grey, where they are."""
    if not may_act:
        note(WITHOUT_TOKEN)


class Expandable:
    """A heading that shows and hides what lies below it: `with Expandable("Environment"): …`.
    Closed at first.
    """

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
