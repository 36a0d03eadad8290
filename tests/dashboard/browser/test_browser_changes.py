"""Comparison of runs, selected columns, and changes of runs, in a browser."""

from __future__ import annotations

import json
import re
import time

import numpy as np
import pytest

from syncline import runs, train
from syncline.runs import LocalFiles, RunDirectory
from syncline.runs.annotations import delete_run
from syncline.runs.run_storage import LocalDirectory
from syncline.train import media
from syncline.train.metric_values import clean
from tests.dashboard.browser.browser_harness import Programs, Site, Watched, address

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.processes]


def select(page: Page, *names: str) -> None:
    for name in names:
        page.get_by_label(f"Select {name}", exact=True).check()
    expect(page.get_by_text(f"{len(names)} selected")).to_be_visible()


def test_selected_runs_are_compared(watched: Watched) -> None:
    page = watched.go("/?q=made-01")
    page.get_by_label("Columns", exact=True).click()
    page.get_by_role("option", name="metric: loss", exact=True).click()
    page.keyboard.press("Escape")
    expect(page.get_by_role("columnheader", name="loss")).to_be_visible()
    assert "columns=" in page.url
    select(page, "made-010", "made-011", "made-012")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Compare 3 runs")
    expect(page.locator("[role=img][aria-label^='loss: made-010 ends']")).to_be_visible()
    differing = page.locator("section", has_text="Latest metrics").locator("td.sl-differs")
    expect(differing.first).to_be_visible()
    page.get_by_role("link", name="Remove made-011").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Compare 2 runs")
    expect(page.locator("[role=img][aria-label*='made-011']")).to_have_count(0)


def test_a_run_is_tagged_archived_and_deleted(watched: Watched, place: Site) -> None:
    with RunDirectory(LocalFiles(place.prepared / "doomed")) as record:
        record.write_run("doomed", {}, detailed=False)
        record.write_outcome("finished")
    page = watched.go(address(1, "doomed"))
    page.get_by_role("button", name="Edit tags and note").click()
    page.get_by_label("Tags, separated by commas").fill("baseline, <b>odd</b>")
    page.get_by_label("Note", exact=True).fill("first\nsecond")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".sl-tags .sl-tag")).to_have_text(["baseline", "<b>odd</b>"])
    expect(page.get_by_text("first second")).to_be_visible()
    assert json.loads((place.prepared / "doomed" / "annotations.json").read_text()) == {
        "tags": ["baseline", "<b>odd</b>"],
        "note": "first\nsecond",
        "archived": False,
    }
    page = watched.go("/?q=baseline")
    expect(page.locator("[data-sl-rows] tbody .sl-tag")).to_have_text(["baseline", "<b>odd</b>"])
    select(page, "doomed")
    page.get_by_role("button", name="Archive").click()
    expect(page.get_by_text("No runs match")).to_be_visible()
    page.get_by_role("switch", name="archived").click()
    expect(page.get_by_role("link", name="doomed")).to_be_visible()
    select(page, "doomed")
    page.get_by_role("button", name="Delete …").click()
    expect(page.get_by_role("dialog")).to_contain_text("doomed")
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert (place.prepared / "doomed").exists()
    page.get_by_role("button", name="Delete …").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("link", name="doomed")).to_have_count(0)
    assert not (place.prepared / "doomed").exists()


def test_a_live_run_is_stopped_and_only_then_deleted(watched: Watched, programs: Programs) -> None:
    program = programs.alive("training")
    page = watched.go(program.address)
    expect(page.get_by_role("button", name="Delete …")).to_have_count(0)
    page.get_by_role("button", name="Stop …").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop", exact=True).click()
    expect(page.locator(".sl-title-row .sl-badge")).to_have_text("aborted")
    assert program.process.wait(timeout=60) != 0
    assert runs.open(program.run).state == "aborted"
    page.get_by_role("button", name="Delete …").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    page.wait_for_url(re.compile(r"/$"))
    assert not program.run.exists()


def test_images_and_histograms_are_shown_with_a_slider(watched: Watched, place: Site) -> None:
    files = LocalFiles(place.prepared / "pictures")
    media.set_store(lambda: media.MediaStore(files, rank=0))
    with RunDirectory(files) as record:
        record.write_run("pictures", {}, detailed=False)
        for step in range(3):
            picture = train.Image(np.full((20, 30 + step, 3), 80 * step), caption=f"<b>{step}</b>")
            weights = train.Histogram([step, step + 1])
            record.report(step, 0, clean({"samples": picture, "weights": weights}))
        record.write_outcome("finished")
    media.set_store(lambda: None)
    page = watched.go(address(1, "pictures"))
    shown = page.get_by_role("img", name="<b>2</b>")
    expect(shown).to_be_visible()
    page.wait_for_function("document.querySelector('.sl-media img').naturalWidth === 32")
    page.get_by_label("Report of samples").focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("document.querySelector('.sl-media img').naturalWidth === 31")
    expect(page.get_by_text("report 1, rank 0 · 31 x 20 · <b>1</b>")).to_be_visible()
    expect(page.locator("[role=img][aria-label^='weights, values per bin'] canvas")).to_be_visible()
    delete_run(LocalDirectory(place.prepared / "pictures"))


def test_a_stalled_run_says_so(watched: Watched, place: Site) -> None:
    with RunDirectory(LocalFiles(place.prepared / "stuck")) as record:
        record.write_run("stuck", {}, detailed=False)
        record.event("attempt", number=1, first_report=0, workers=[{"rank": 0}])
        record.event("stalled", since=time.time() - 240)
        page = watched.go(address(1, "stuck"))
        expect(page.get_by_text("Ranks are stalled for 4 min.")).to_be_visible()
        record.event("resumed")
        expect(page.get_by_text("Ranks are stalled")).to_have_count(0)
    delete_run(LocalDirectory(place.prepared / "stuck"))


def test_a_stranger_can_compare_but_change_nothing(as_stranger: Watched) -> None:
    page = as_stranger.go(address(1, "made-030"))
    for name in ("Edit tags and note", "Archive", "Delete …"):
        expect(page.get_by_role("button", name=name)).to_be_disabled()
    page = as_stranger.go("/?q=made-03")
    select(page, "made-030", "made-031")
    expect(page.get_by_role("button", name="Delete …")).to_be_disabled()
    expect(page.get_by_role("button", name="Archive")).to_be_disabled()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Compare 2 runs")
