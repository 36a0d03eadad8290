"""Servers of the compared libraries: `python -m bench.programs.serve.apps.MODULE APP PORT`.

- `deployments.py`   syncline.serve and Ray Serve, from the same source
- `churn.py`         syncline.serve with replicas that are replaced all the time
- `asgi.py`          uvicorn in one process, without a hop
- `lit.py`           LitServe
- `bento.py`         BentoML
- `item.py`          the JSON body of the FastAPI application
- `options.py`       limits that all of them share
"""
