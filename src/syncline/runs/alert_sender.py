"""Process that sends one alert, so that a slow or broken receiver never delays a run.

Started by `alerts` as a file with its own interpreter, without this package: it reads a JSON object
from its input, runs the command or posts to the webhook within the time limit, and prints a failure
to stderr.
"""

import json
import os
import subprocess
import sys
import urllib.request


def main() -> None:
    """Send the alert that the input describes."""
    given = json.load(sys.stdin)
    content, limit_s = json.dumps(given["alert"]).encode(), given["limit_s"]
    try:
        if given["command"]:
            facts = {
                f"SYNCLINE_ALERT_{name.upper()}": str(given["alert"][name])
                for name in ("event", "run", "path", "cause", "text")
            }
            os.environ.update(facts)
            command = given["command"]
            subprocess.run(command, shell=True, input=content, timeout=limit_s, check=True)
        if given["webhook"]:
            headers = {"content-type": "application/json", "user-agent": "syncline"}
            request = urllib.request.Request(given["webhook"], content, headers)
            with urllib.request.urlopen(request, timeout=limit_s):
                pass
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        # The URL of a webhook and a command may contain secrets.
        what = "command" if isinstance(error, subprocess.SubprocessError) else "webhook"
        reason = (
            f"exit code {error.returncode}"
            if isinstance(error, subprocess.CalledProcessError)
            else f"no end within {limit_s:g} s"
            if isinstance(error, (subprocess.TimeoutExpired, TimeoutError))
            else getattr(error, "reason", None) or type(error).__name__
        )
        print(f"syncline: the alert {what} failed: {reason}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
