"""Programs of the group "serve": requests over HTTP, calls of handles, streams, scaling and a soak.

In the order in which a measurement flows through them:

- `http.py`        echo of bodies, batched inference: a server under wrk at 1, 16 and 64 connections
- `adaptive.py`    adaptive batching next to several fixed waits
- `streams.py`     concurrent token streams
- `handles.py`     calls of deployment handles, and chains of deployments
- `scaling.py`     replicas added in a burst, and from zero
- `soak.py`        growth of memory, descriptors and threads over many requests
- `apps/`          the servers: one module per library, all with the same applications
- `server.py`      starts and stops a server, measures its first response and its CPU time
- `load.py`        runs wrk; `post.lua` is its script
- `stream_client.py`  reads many streams at once
- `vit.py`         the model of the batched applications, and its inputs

Each server has one model or handler process, as the libraries do by default. wrk, a closed-loop
load generator, runs on the same machine: install it with `apt-get install wrk`.
"""
