"""What people see of a search while it runs, and at its end.

In flow order: `scan` goes through the trials once and chooses those to show, `values` makes texts
of what they hold, `snapshot` puts both into one frozen picture. `summary` says how a search ended,
`endings` which trials have. Up to here nothing knows a screen. `tables` draws with rich, `pages` in
HTML. `reporter` is the contract of all reporters, `live` the one for terminals and `lines` the one
for pipes and files; those that programs name are in `syncline.tune.progress_reporter`. What
trainers need too is in `syncline.train.console`.
"""
