"""Programs and libraries that import `ray`, run with syncline.

`python -m syncline.as_ray script.py` (or `-m module`) runs an unmodified program; `install()` does
the same in a program or a notebook before its first `import ray`. `import ray`, also in libraries,
then gives syncline: `ray.util.queue` is the module `syncline.util.queue`. Child processes inherit
it through the variable PYTHONPATH, whose first directory, `startup`, has a `sitecustomize.py`.

Files in the order in which an import flows through them: `finder` (modules named `ray…`),
`ray_module` (the module `ray` itself), `names` (counterparts and advice), `cluster_utils` (nodes of
Ray, which are refused), `distribution` (Ray's entry for `importlib.metadata`), `imports`
(installation), `program` (running a program).

Covered: this machine. Not covered: Ray clusters, whose engine needs Ray itself; child processes
that ignore PYTHONPATH (`python -I`, `-E`, or an `env=` without it).
"""

from syncline.as_ray.imports import install
from syncline.as_ray.names import API_VERSION

__all__ = ["API_VERSION", "install"]
