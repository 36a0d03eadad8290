"""`syncline run`: starts template and agent before anything else, because that takes longest."""

from __future__ import annotations

import os
from collections.abc import Sequence

from syncline import settings
from syncline.launcher import options, warm
from syncline.launcher.agent_process import AgentProcess
from syncline.launcher.template import Template, start_agent

THREADS = "OMP_NUM_THREADS"


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit code."""
    given = options.parse(arguments)
    has_metric = given.metric is not None  # empty for an unset variable of a shell, for example
    if has_metric or given.budget or given.group or given.keep_best or given.as_json:
        from syncline.launcher import experiment  # a job does not wait for its imports

        return experiment.main(given, arguments)
    variables = settings.inherited_environment()
    count = options.worker_count(given)
    if count is None or count > 1:
        # As torchrun does. The template must have it before it imports torch.
        variables.setdefault(THREADS, "1")
    template = None if given.no_warm else warm.connect(variables)
    if template is None:
        template = Template.start(variables)
    agent = AgentProcess(
        options=options.for_torch(given), directory=os.getcwd(), variables=variables
    )
    try:
        started = start_agent(template, agent)
        from syncline.launcher import job  # imported while the agent starts

        return job.run(template, started, given, variables)
    finally:
        template.close()
