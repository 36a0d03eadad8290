"""Jobs: programs that are sent to a cluster, or run on this machine in the background.

Files in the order in which a request flows through them: `client` (`JobSubmissionClient`),
`details` (`JobStatus`, `JobDetails`), `errors`. For clusters, `http_api` speaks to Ray's job API
with the token of `cluster_token`; `environments` sends directories as `packages`. On this machine,
`local_jobs` keeps a `job_directory` for each job, and `supervisor` is the process that runs it. The
commands `syncline submit` and `syncline jobs` use `http_api`.
"""

from syncline.job_submission.client import JobSubmissionClient
from syncline.job_submission.details import (
    DriverInfo,
    JobDetails,
    JobErrorType,
    JobInfo,
    JobStatus,
    JobType,
)

__all__ = [
    "DriverInfo",
    "JobDetails",
    "JobErrorType",
    "JobInfo",
    "JobStatus",
    "JobSubmissionClient",
    "JobType",
]
