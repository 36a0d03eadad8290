"""Hostile runs have no effect in a browser; their texts are shown as texts."""

from __future__ import annotations

import pytest

from syncline.testing.waiting import eventually
from tests.dashboard.browser.browser_harness import Site, Watched, address
from tests.dashboard.browser.hostile_runs import (
    DIRECTORY,
    IMAGE,
    SECRET,
    SHOWN,
    TEMPLATE,
    write_all,
)

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.processes]
STORAGE = 2


@pytest.fixture(scope="module", autouse=True)
def hostile(place: Site) -> None:
    if not any(place.hostile.iterdir()):
        write_all(place.hostile)


def assert_harmless(page: Page) -> None:
    """Assert that nothing was executed and no text became an element."""
    assert page.evaluate("window.pwned") is None
    assert page.locator("main :is(script, img, iframe, object, embed, b)").count() == 0
    content = page.content()
    assert "\x1b" not in content, content[content.index("\x1b") - 300 :][:400]
    assert "\u202e" not in page.content()


def test_names_in_the_list_are_texts(watched: Watched) -> None:
    page = watched.go("/")
    page.get_by_label("Filter runs").fill(TEMPLATE[:7])
    rows = page.locator("[data-sl-rows] tbody tr")
    expect(rows).to_have_count(4)
    expect(rows.first).to_contain_text(IMAGE)
    expect(rows.first).to_contain_text("{{7*7}}")
    # no URL can contain the name of the fourth
    assert page.locator("[data-sl-rows] tbody a").count() == 3
    assert_harmless(page)
    page.get_by_role("link", name=IMAGE).first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(IMAGE)


@pytest.mark.parametrize("kind", ["train", "tune", "data"])
def test_everything_on_the_page_of_a_run_is_text(watched: Watched, kind: str) -> None:
    page = watched.go(address(STORAGE, f"{kind} {DIRECTORY}"))
    expect(page.get_by_role("heading", level=1)).to_have_text(SHOWN)
    eventually(
        lambda: page.locator("main").inner_text().count(IMAGE) > 5, what="the record is shown"
    )
    for details in page.locator("summary").all():
        if details.is_visible():
            details.click()
    for chart in page.locator("main canvas").all():
        if chart.is_visible():
            chart.hover()
    if kind == "tune":
        page.locator("section", has=page.locator("h2#trials")).locator("tbody button").first.click()
        expect(page.get_by_label("Configuration of the trial")).to_contain_text(IMAGE)
    fields = page.get_by_role("textbox").or_(page.get_by_role("searchbox"))
    if fields.count():
        fields.last.fill(IMAGE)
    page.wait_for_timeout(500)
    assert_harmless(page)
    assert "{{7*7}}" in page.locator("main").inner_text()


def test_a_hostile_profile_runs_in_a_place_of_its_own(watched: Watched) -> None:
    page = watched.go(address(STORAGE, f"train {DIRECTORY}"))
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="evil.html").click()
    opened.value.wait_for_function("document.title !== 'started'")
    opened.value.wait_for_timeout(300)
    assert (
        opened.value.title() == "ran"
    )  # it sees neither its opener, nor a cookie, nor another page
    opened.value.close()
    assert_harmless(page)


def test_a_damaged_run_is_shown_as_far_as_it_goes(watched: Watched) -> None:
    page = watched.go(address(STORAGE, "damaged"))
    expect(page.get_by_role("heading", level=1)).to_have_text("damaged")
    expect(page.locator("[role=img][aria-label^='loss:'] canvas")).to_be_visible()
    expect(page.get_by_label("Log", exact=True)).to_contain_text("after the long line")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert SECRET not in page.content()
    assert "passwd" not in page.content()
