"""Display of a search while it runs and at its end.

Files, in the order in which data flows through them:

trial_selection.py   groups all trials by status and selects those to display
snapshot.py          `View` takes frozen `Snapshot`s with all displayed texts; summaries
tables.py            tables with rich and in HTML
reporter.py          `ProgressReporter`, the contract of reporters; `DefaultReporter`, the base of
                     the default ones; and `LineReporter` for pipes and files
live_table.py        `LiveReporter` for terminals

Reporters with Ray's names are in `syncline.tune.progress_reporter`. Trainers share
`syncline.train.console.formatting` and `syncline.core.live_region`.
"""
