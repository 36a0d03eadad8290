"""Controls of the charts of metrics, in a browser."""

from __future__ import annotations

import pytest

from tests.dashboard.browser.browser_harness import Programs, Watched

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.processes]

SERIES = """() => {
  const chart = [...document.querySelectorAll("[role=img][aria-label^='loss:']")][0];
  const echart = chart && getElement(Number(chart.id.slice(1)))?.chart;
  if (!echart) return {axis: "", points: [], shown: []};  // it is created again
  const option = echart.getOption();
  return {axis: option.xAxis[0].name, points: option.series.map((each) => each.data.length),
          shown: option.legend[0].data};
}"""


def drawn(page: Page) -> dict[str, object]:
    return page.evaluate(SERIES)


def test_the_axis_and_the_smoothing_of_all_charts_change(
    watched: Watched, programs: Programs
) -> None:
    page = watched.go(programs.last("training").address)
    expect(page.locator("[role=img][aria-label^='loss:'] canvas")).to_be_visible()
    assert drawn(page)["axis"] == "report"
    page.get_by_role("combobox", name="Horizontal axis").click()
    page.get_by_role("option", name="step", exact=True).click()
    page.wait_for_function(f"({SERIES})().axis === 'step'")
    expect(page.locator("[role=img][aria-label^='step:']")).to_have_count(0)
    slider = page.get_by_label("Smoothing")
    for _ in range(30):
        slider.press("ArrowRight")
    expect(page.locator(".sl-slider")).to_contain_text("0.30")
    page.wait_for_function(f"({SERIES})().points.length === 2")
    assert drawn(page)["shown"] == ["mean over ranks"]
    before = page.locator("#sl-log").inner_text()
    expect(page.locator("#sl-log")).not_to_have_text(before)  # the page was updated
    assert slider.input_value() == "0.3"
    page.get_by_role("combobox", name="Horizontal axis").click()
    page.get_by_role("option", name="time since start").click()
    page.wait_for_function(f"({SERIES})().axis.startsWith('time since start')")
