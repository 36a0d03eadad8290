"""The dashboard: run directories, live or finished, in a browser. `syncline dashboard [STORAGE_PATH
…]` starts it; no engine needs to run.

Everything shown comes from run directories through `syncline.runs`; what acts on a live run goes to
it through `live`. Whatever a run recorded is foreign text: it reaches the browser as text alone,
never as markup, script or the name of an option.

Files, in the order in which a request meets them: `server` (listens, prints its address),
`security` (who may ask for what), `run_index` (the runs there are), `metrics` (Prometheus), `files`
(downloads), `pages` (what is at each address), `live` with `cluster_runs` (asks a run that goes
on), `look` (how it looks). Importing this package loads no web
framework: `server` does when it starts.
"""
