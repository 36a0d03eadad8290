"""Page of a serve: its applications, one application, or one deployment.

The address chooses the view: `?app=NAME`, `?app=NAME&deployment=NAME`; without both, the overview.
Values come from the record, which the controller writes every second; they are computed in
`serving_state`, `serving_figures` and `serving_traces`.
"""

from __future__ import annotations

from typing import Protocol

from syncline.dashboard.pages.run_view import RunView
from syncline.dashboard.pages.serving_application import ApplicationPanel, OverviewPanel
from syncline.dashboard.pages.serving_deployment import DeploymentPanel
from syncline.dashboard.pages.serving_panels import ErrorsPanel, EventsPanel, SlowPanel
from syncline.dashboard.pages.serving_record import ServingRecord


class Panel(Protocol):
    """A part of the page."""

    def update(self) -> None:
        """Show the current record."""


class ServingPage:
    """Page of a run of kind "serve"."""

    def __init__(self, view: RunView) -> None:
        self._record = ServingRecord(view)
        app, deployment = view.query.get("app", ""), view.query.get("deployment", "")
        self._panels: list[Panel] = []
        if deployment:
            self._panels.append(DeploymentPanel(self._record, app, deployment))
        elif app:
            self._panels.append(ApplicationPanel(self._record, app))
        else:
            self._panels.append(OverviewPanel(self._record))
        self._panels.append(SlowPanel(self._record, app, deployment))
        self._panels.append(ErrorsPanel(self._record, app, deployment))
        self._panels.append(EventsPanel(self._record, app, deployment))

    def update(self) -> None:
        """Show the current record."""
        self._record.update()
        for panel in self._panels:
            panel.update()
