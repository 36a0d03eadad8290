"""Output of `fit()` in the terminal or notebook, during the run and at its end.

Files in the order in which data flows through them:
    console_reporter.py   `ConsoleReporter`: presents a run on the chosen display
    run_status.py         `RunStatus`: collects the state of a run and creates snapshots
    snapshot.py           `Snapshot`: the state of a run at one moment
    formatting.py         numbers, durations and paths as text
    rows.py               title, labelled rows and closing lines of a snapshot
    display.py            `Display`: contract of the displays, and those that do not draw
    panel.py              a snapshot drawn with rich
    terminal_panel.py     `TerminalPanel`: panel in a terminal
    notebook_panel.py     `NotebookPanel`: HTML in a notebook

A run on a cluster has its `ConsoleReporter` in the controller's actor; the attached programs
display its snapshots (`controller.event_stream`). `syncline.core.live_region` draws below the
program's own output.
"""
