"""What people see of `fit()` while it runs, and at its end.

In flow order: `status` sees what the controller does, `progress` finds out from the metrics how far
the run is, and both go into a frozen `snapshot`. `rows` puts that into words, with `values` for
numbers and durations; up to here nothing knows a screen. `panel` draws with rich, `pages` in HTML.
`display` is the contract of all displays and chooses one: `live` in terminals, `notebook`, else
plain lines. `unfinished` and `streams` let the program's own output, progress bars included, pass
above a panel that is being drawn. `narrator` is what the controller talks to. A run on a cluster is
narrated in its actor, and displayed in the programs that are attached (`controller.story`).
"""
