"""What a search decides, does and keeps: `events` (what happens, and what is to be done), `state`
(decides; pure), `needed_metrics` (what it asks of results), `view` (what schedulers may ask and
do), `driver` (does it), `upkeep` (of files), `journal` and `restore` (what a kill does not take
away), `record` (what people see of it), `running` (who runs, and what that uses), `live` (answers
while it runs).
"""
