"""Pages of dataset executions, searches and the cluster in a browser; and pages of a visitor
without the token.
"""

from __future__ import annotations

import ast
import re

import pytest

from syncline.testing.waiting import eventually
from tests.dashboard.browser.browser_harness import Programs, Watched

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import Locator, Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.processes]


def fact(page: Page, label: str) -> Locator:
    return page.locator(".sl-fact", has=page.get_by_text(label, exact=True)).locator("dd").first


def whole(text: str) -> int:
    return int(re.sub(r"\D", "", text) or 0)


def test_an_execution_is_seen_while_it_goes_on_and_after_it_was_killed(
    watched: Watched, programs: Programs
) -> None:
    program = programs.alive("execution")
    page = watched.go(program.address)
    expect(page.locator("h1 + .sl-badge")).to_have_text("running")
    expect(page.locator(".sl-operator").first).to_contain_text("MapBatches(slow)")
    expect(page.locator(".sl-operator")).to_have_count(2)
    expect(page.locator(".sl-bar .sl-soft", has_text="<b>odd</b>")).to_be_visible()
    done = whole(page.locator(".sl-operator").first.inner_text())
    eventually(
        lambda: whole(page.locator(".sl-operator").first.inner_text()) != done,
        what="the operator goes on",
    )
    expect(page.get_by_text("Logical Plan")).to_be_visible()
    program.kill()
    expect(page.locator("h1 + .sl-badge")).to_have_text("killed")
    expect(page.locator(".sl-operator").first).to_contain_text("MapBatches(slow)")


def test_a_search_is_seen_while_it_goes_on_and_after_it_was_killed(
    watched: Watched, programs: Programs
) -> None:
    program = programs.alive("search")
    page = watched.go(program.address)
    trials = page.locator("section", has=page.locator("h2#trials"))
    expect(fact(page, "Trials")).to_have_text("8 of 10")
    expect(trials.locator("tbody tr")).to_have_count(10)
    check_table(trials)
    expect(
        page.locator("[role=img][aria-label^='Parallel coordinates of 10 trials'] canvas")
    ).to_be_visible()
    expect(page.locator("[role=img][aria-label^='loss:'] canvas")).to_be_visible()
    check_copying(page)
    trials.locator("tbody button").first.click()
    trial = page.locator("section", has=page.locator("h2#trial"))
    expect(trial.get_by_label("Configuration of the trial")).to_contain_text("'lr'")
    page.get_by_role("button", name="Stack traces of all trials").click()
    expect(page.locator(".sl-stacks")).to_contain_text("in trial")
    program.kill()
    expect(page.locator("h1 + .sl-badge")).to_have_text("killed")
    expect(trials.locator(".sl-badge", has_text="killed")).to_have_count(2)


def check_table(trials: Locator) -> None:
    """Sorting by a heading, and filtering."""
    heading = trials.get_by_role("columnheader", name="loss").get_by_role("button")
    heading.click()
    expect(trials.locator("th[aria-sort]")).to_contain_text("loss")
    column = (
        trials.locator("th")
        .all_inner_texts()
        .index(next(text for text in trials.locator("th").all_inner_texts() if "loss" in text))
    )
    values = [
        float(text)
        for text in trials.locator(f"tbody td:nth-child({column + 1})").all_inner_texts()
    ]
    assert values == sorted(values) or values == sorted(values, reverse=True)
    trials.get_by_label("Filter trials").fill("width<3")
    expect(trials.locator("tbody tr")).to_have_count(2)
    trials.get_by_label("Filter trials").fill("")
    expect(trials.locator("tbody tr")).to_have_count(10)


def check_copying(page: Page) -> None:
    """The best configuration is copied to the clipboard."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy configuration").click()
    expect(page.get_by_text("Copied.")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert set(ast.literal_eval(copied)) == {"lr", "width", "activation"}


def test_what_runs_on_this_machine_is_seen_until_it_ends(
    watched: Watched, programs: Programs
) -> None:
    program = programs.alive("search")
    page = watched.go("/cluster")
    panel = page.locator("section", has=page.locator(f"h2#process-{program.process.pid}"))
    expect(panel).to_contain_text(program.run.name)
    expect(panel).to_contain_text("TrialRunner")
    expect(panel.locator(".sl-badge", has_text="alive").first).to_be_visible()
    program.kill()
    expect(panel).to_be_hidden()


def test_without_the_token_pages_are_read_and_nothing_can_be_pressed(
    as_stranger: Watched, programs: Programs
) -> None:
    page = as_stranger.go(programs.alive("training").address)
    expect(page.locator("h1 + .sl-badge")).to_have_text("running")
    expect(page.get_by_text("To enable actions, open the URL with the token")).to_be_visible()
    for name in ("Stack traces of all ranks", "CPU flame graph", "Memory profile", "Torch trace"):
        expect(page.get_by_role("button", name=name)).to_be_disabled()
    page.get_by_role("button", name="Stack traces of all ranks").dispatch_event("click")
    page.evaluate(
        "document.querySelectorAll('button[disabled]').forEach(button => { button.disabled = "
        "false; button.click() })"
    )
    page.wait_for_timeout(1000)
    expect(page.locator(".sl-stacks h3")).to_have_count(0)
