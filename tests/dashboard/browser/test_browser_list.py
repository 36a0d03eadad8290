"""The list of runs in a browser: filter, order and paging with mouse and keyboard."""

from __future__ import annotations

import re

import pytest

from tests.dashboard.browser.browser_harness import PREPARED, Watched

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.processes]


def names(page: Page) -> list[str]:
    return page.locator("[data-sl-rows] tbody a.sl-link").all_inner_texts()


def choose(page: Page, label: str, option: str) -> None:
    page.get_by_label(label, exact=True).click()
    page.get_by_role("option", name=option, exact=True).click()


def test_runs_are_filtered_by_what_is_typed_and_chosen(watched: Watched) -> None:
    page = watched.go("/")
    page.get_by_label("Filter runs").fill("made-0")
    expect(page.get_by_role("status")).to_contain_text(re.compile(rf"^{PREPARED} of \d+$"))
    choose(page, "State", "errored")
    expect(page.get_by_role("status")).to_contain_text(re.compile(rf"^{PREPARED // 3} of"))
    assert set(page.locator("[data-sl-rows] tbody .sl-badge").all_inner_texts()) == {"errored"}
    page.get_by_label("Filter runs").fill("made-003")
    expect(page.locator("[data-sl-rows] tbody tr")).to_have_count(1)
    assert names(page) == ["made-003"]
    assert "q=made-003" in page.url
    page.get_by_label("Filter runs").fill("there is none")
    expect(page.get_by_text("No runs match")).to_be_visible()


def test_runs_are_sorted_and_paged(watched: Watched) -> None:
    page = watched.go("/?q=made-")
    heading = page.get_by_role("columnheader", name="Run", exact=False).get_by_role("button")
    heading.click()
    expect(page.locator("th[aria-sort]")).to_have_count(1)
    expect(page.locator("[data-sl-rows] tbody a.sl-link").first).to_have_text(
        re.compile("made-0(00|59)")
    )
    first = names(page)[0]
    heading.click()
    expect(page.locator("[data-sl-rows] tbody a.sl-link").first).to_have_text(
        "made-059" if first == "made-000" else "made-000"
    )
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_label("Pages")).to_contain_text(f"51-{PREPARED} of {PREPARED}")
    expect(page.locator("[data-sl-rows] tbody tr")).to_have_count(PREPARED - 50)
    page.get_by_role("button", name="Previous").click()
    expect(page.locator("[data-sl-rows] tbody tr")).to_have_count(50)


def test_a_run_is_found_and_opened_without_a_mouse(watched: Watched) -> None:
    page = watched.go("/")
    expect(page.locator("[data-sl-rows] tbody a.sl-link").first).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("made-042")
    expect(page.locator("[data-sl-rows] tbody tr")).to_have_count(1)
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("link", name="made-042")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("made-042")
    expect(page.locator("#errors")).to_be_visible()  # 42 is a multiple of three
