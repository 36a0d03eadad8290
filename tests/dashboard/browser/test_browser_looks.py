"""Every page on a small screen, in light and dark mode, and with the keyboard."""

from __future__ import annotations

import pytest

from tests.dashboard.browser.browser_harness import Programs, Site, Watched, address
from tests.dashboard.browser.hostile_runs import DIRECTORY, write_all

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.processes]
PAGES = ("list", "training", "execution", "search", "cluster", "hostile")
# Visible controls and their accessible names.
CONTROLS = """() => [...document.querySelectorAll(
    'a[href], button, input, textarea, summary, [role=button], [role=switch], [role=combobox], '
    + '[tabindex="0"]')]
  .filter(each => each.checkVisibility({visibilityProperty: true}) && !each.disabled
    && each.getClientRects().length
    && each.tabIndex >= 0 && !each.closest('[aria-hidden=true]'))"""
NAMELESS = f"""() => ({CONTROLS})().filter(each => !(
    each.getAttribute('aria-label') || each.innerText?.trim() || each.labels?.length || each.title
    || (each.getAttribute('aria-labelledby')
      && document.getElementById(each.getAttribute('aria-labelledby')))
  )).map(each => each.outerHTML.slice(0, 200))"""
MAX_STOPS = 150
UNSEEN = """() => {
  const each = document.activeElement;
  const isMarked = (style) => style.boxShadow !== 'none'
    || (style.outlineStyle !== 'none' && style.outlineWidth !== '0px');
  const around = [each, each.closest('.q-field__control')].filter(Boolean);
  window.reached.add(each);
  if (each !== document.body && !around.some((box) => isMarked(getComputedStyle(box))))
    window.unseen.push(each.outerHTML.slice(0, 200));
}"""


def open_page(name: str, watched: Watched, programs: Programs, place: Site) -> Page:
    """Open a page and return its content."""
    if name == "list":
        page = watched.go("/")
        expect(page.locator("[data-sl-rows] tbody tr").first).to_be_visible()
    elif name == "cluster":
        page = watched.go("/cluster")
        expect(page.get_by_text("Loading …")).to_be_hidden()
    elif name == "hostile":
        if not any(place.hostile.iterdir()):
            write_all(place.hostile)
        page = watched.go(address(2, f"train {DIRECTORY}"))
        expect(page.locator("h2#configuration")).to_be_visible()
    else:
        page = watched.go(programs.last(name).address)
        expect(page.locator("h1 + .sl-badge")).not_to_have_text("")
    return page


def lightness(page: Page) -> float:
    """Return the brightness of the page's background: 0 is black, 1 is white."""
    return float(
        page.evaluate(
            "Math.max(...getComputedStyle(document.body).backgroundColor"
            ".match(/[0-9.]+/g).slice(0, 3)) / 255"
        )
    )


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_usable_on_every_screen_and_by_keyboard(
    name: str, watched: Watched, programs: Programs, place: Site
) -> None:
    page = open_page(name, watched, programs, place)
    page.emulate_media(color_scheme="light")
    assert lightness(page) > 0.9
    page.emulate_media(color_scheme="dark")
    page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    assert lightness(page) < 0.2
    assert page.evaluate(NAMELESS) == []
    assert_headings_descend(page)
    assert_tab_reaches_everything(page)
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_timeout(300)
    wide = page.evaluate(
        "[...document.querySelectorAll('body *')].filter(each => each.getBoundingClientRect()"
        ".right > 390 && each.checkVisibility() && !each.closest('.q-table__container'))"
        ".map(each => Math.round(each.getBoundingClientRect().right) + ' ' + each.tagName + ' ' "
        "+ each.className + ': ' + each.innerText.slice(0, 60))"
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 390, wide


def assert_headings_descend(page: Page) -> None:
    """Assert that headings begin at level one and skip no level."""
    levels = [
        int(level)
        for level in page.evaluate(
            "[...document.querySelectorAll('h1, h2, h3, h4')].filter(each => "
            "each.checkVisibility()).map(each => each.tagName[1])"
        )
    ]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in zip(levels, levels[1:], strict=False)), (
        levels
    )


def assert_tab_reaches_everything(page: Page) -> None:
    """Assert that Tab reaches every control with a visible focus."""
    page.evaluate("document.activeElement.blur()")
    wanted = page.evaluate(
        f"() => {{ window.controls = ({CONTROLS})(); return window.controls.length }}"
    )
    page.evaluate(
        f"() => {{ window.reached = new Set(); window.unseen = []; window.lookAround = {UNSEEN} }}"
    )
    for _ in range(min(wanted + 5, MAX_STOPS)):
        page.keyboard.press("Tab")
        page.evaluate("lookAround()")
    assert page.evaluate("window.unseen") == []
    if wanted + 5 <= MAX_STOPS:
        missed = (
            "[...window.controls].filter(each => each.isConnected && "
            "!window.reached.has(each)).map(each => each.outerHTML.slice(0, 200))"
        )
        assert page.evaluate(missed) == []


def test_the_colours_are_switched_and_kept(watched: Watched) -> None:
    page = watched.go("/")
    page.emulate_media(color_scheme="light")
    switch = page.get_by_label("Switch between system, light and dark colors")
    for mode in ("light", "dark"):
        switch.click()
        page.wait_for_function(f"document.documentElement.dataset.mode === '{mode}'")
    page.reload()
    page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    assert lightness(page) < 0.2
    page.get_by_label("Switch between system, light and dark colors").click()
    page.wait_for_function("document.documentElement.dataset.mode === 'system'")
