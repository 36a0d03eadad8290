"""`AlertCallback`: alerts about a run, configured in the program."""

from __future__ import annotations

from syncline.runs.alerts import AlertSender
from syncline.train.run_config import UserCallback


class AlertCallback(AlertSender, UserCallback):
    """Alerts for `RunConfig(callbacks=[…])`, of a training or a search.

    The receiver gets a JSON object with `event`, `run`, `kind`, `path`, `cause`, `page` (address in
    the dashboard, if one shows the run) and `text`, a sentence; Slack, Mattermost and Discord show
    the sentence. A command reads the object from its input and finds the values in
    `SYNCLINE_ALERT_EVENT`, `SYNCLINE_ALERT_RUN`, `SYNCLINE_ALERT_PATH`, `SYNCLINE_ALERT_CAUSE` and
    `SYNCLINE_ALERT_TEXT`. A failed alert is printed and never affects the run.

    Args:
        command: Shell command, such as `mail -s "$SYNCLINE_ALERT_TEXT" me@example.org`.
        webhook: URL that gets a POST request.
        events: Events that are sent: "errored", "stalled" (no progress for 30 s), "finished",
            "aborted"; by default all but the last.

    Raises:
        ValueError: Neither a command nor a webhook, not an HTTP URL, or an unknown event.
    """
