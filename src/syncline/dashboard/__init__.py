"""The dashboard shows run directories, live or finished, in a browser. Start it with
`syncline dashboard [STORAGE_PATH …]`; it needs no running engine.

All values come from run directories through `syncline.runs`; actions go to live runs through
`run_control`. Recorded text is untrusted: it reaches the browser only as text, never as markup,
script or the name of an option.

Files, in the order in which a request passes them: `server` (process, port, log output),
`application` (web server), `security` (access control) with `connections` (checks of connections),
`pages` (content of each URL), `widgets` (elements of pages), `downloads` (files) and `prometheus`
(metrics, with `serving_metrics` and `program_metrics`). Values of the pages: `run_index` with
`run_query` (list of runs), `comparison`, `metric_curves`, `progress`, `training_figures`,
`rl_figures`, `dataset_executions` with `operator_views`, `search_trials`, `search_table`,
`search_figures`, `serving_state`, `serving_figures` and `serving_traces`, `engine_snapshots` and
`cluster_poller` with its process `cluster_probe`; `formatting` formats them. `run_control` sends
requests to live runs, `serving_control` to live serves. Importing this package does not load the
web framework; `serve` does.
"""
