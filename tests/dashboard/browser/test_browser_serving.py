"""Pages of a live serve in a browser: applications, deployments, slow requests and errors."""

from __future__ import annotations

import pytest

from syncline.testing.waiting import eventually
from tests.dashboard.browser.browser_harness import Program, Programs, Watched

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import Locator, Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.processes]


@pytest.fixture
def serving(programs: Programs) -> Program:
    """A serve that has recorded a slow request and an error."""
    program = programs.alive("serving")
    for name in ("slow", "errors"):
        path = program.run / "serve" / f"{name}.jsonl"
        eventually(
            lambda path=path: path.exists() and path.stat().st_size,  # type: ignore[misc]
            what=f"{path} has a line",
        )
    return program


def section(page: Page, title: str) -> Locator:
    heading = page.get_by_role("heading", name=title, exact=True)
    return page.locator("section", has=heading)


def row(table: Locator, name: str) -> Locator:
    link = table.page.get_by_role("link", name=name, exact=True)
    return table.locator("tbody tr", has=link)


def fits(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


def test_from_the_list_of_applications_to_a_replica(watched: Watched, serving: Program) -> None:
    page = watched.go("/serving")
    applications = page.get_by_label("Applications")
    expect(row(applications, "numbers")).to_contain_text("running")
    expect(row(applications, "numbers")).to_contain_text("/numbers")
    expect(row(applications, "plain")).to_contain_text("running")

    row(applications, "numbers").get_by_role("link", name="numbers", exact=True).click()
    for title in ("Requests per second", "Latency at the proxy"):
        expect(page.locator(f"[role=img][aria-label^='{title}:'] canvas")).to_be_visible()
    boxes = page.get_by_label("Deployments in the order of calls").locator(".sl-operator")
    expect(boxes).to_have_count(3)
    expect(boxes.first).to_contain_text("Front")
    expect(boxes.first).to_contain_text("Checker")
    names = page.get_by_label("Deployments", exact=True).locator("tbody tr td:first-child")
    expect(names).to_have_text(["Front", "Checker", "Doubler"])

    page.get_by_label("Deployments", exact=True).get_by_role("link", name="Doubler").click()
    expect(page.get_by_text("Items per batch", exact=True).first).to_be_visible()
    replica = page.get_by_label("Replicas", exact=True).locator("tbody tr")
    expect(replica).to_have_count(1)
    expect(replica.locator(".sl-badge")).to_have_text("running")
    page.get_by_role("button", name="Stack traces").click()
    expect(page.get_by_label("Stack of the replica")).to_contain_text("Thread")
    page.set_viewport_size({"width": 420, "height": 900})
    eventually(lambda: fits(page), what="the page fits a small screen")


def test_a_slow_request_is_shown_with_its_calls(watched: Watched, serving: Program) -> None:
    page = watched.go(f"{serving.address}?app=numbers")
    spans = page.get_by_label("Timelines of the slowest requests")
    expect(spans.locator(".sl-shares-name").first).to_contain_text("GET /numbers")
    expect(spans.locator(".sl-timeline-child").first).to_have_text("Checker.__call__")
    # The call fills nearly the whole bar of its request.
    request, call = (spans.locator(".sl-timeline-bar").nth(place) for place in (0, 1))
    widths = [
        each.locator("span").evaluate_all(
            "spans => Math.max(...spans.map(span => span.getBoundingClientRect().width))"
        )
        for each in (request, call)
    ]
    assert 0.5 * widths[0] < widths[1] <= widths[0]
    expect(section(page, "Slow requests").locator("tbody tr").first).to_contain_text("GET /numbers")


def test_an_error_is_shown_where_it_was_raised(watched: Watched, serving: Program) -> None:
    page = watched.go(f"{serving.address}?app=numbers")
    errors = section(page, "Errors")
    expect(errors.locator("tbody tr").first).to_contain_text("Checker")
    expect(errors.locator("tbody tr").first).to_contain_text("ValueError: 13 is <b>odd</b>")
    expect(errors.locator("tbody")).not_to_contain_text("Front")
    errors.get_by_text("Traceback of the latest error").click()
    expect(errors.get_by_label("Traceback")).to_contain_text("in __call__")
