"""The echo application on BentoML with one worker, started by `bentoml serve`. It reads JSON."""

import bentoml

from bench.programs.serve.apps import options


@bentoml.service(
    workers=1,
    http={"host": options.HOST},
    logging={"access": {"enabled": False}},
    metrics={"enabled": False},
)
class Echo:
    """Answers with the text of the request."""

    @bentoml.api(route="/echo")
    async def echo(self, text: str) -> dict[str, str]:
        """Return the text."""
        return {"text": text}
