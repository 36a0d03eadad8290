"""The applications on LitServe with one worker. It reads JSON, so images are in hexadecimal."""

import sys
from typing import Any

import litserve

from bench.programs.serve.apps import options


class Echo(litserve.LitAPI):
    """Answers with the text of the request."""

    def setup(self, device: str) -> None:
        """Nothing to load."""

    def decode_request(self, request: dict[str, str]) -> str:
        """Return the text."""
        return request["text"]

    def predict(self, text: str) -> str:
        """Return the same text."""
        return text

    def encode_response(self, text: str) -> dict[str, str]:
        """Return the JSON body."""
        return {"text": text}


class Batched(litserve.LitAPI):
    """Classifies images in batches."""

    def setup(self, device: str) -> None:
        """Load the model."""
        from bench.programs.serve.vit import Classifier

        self._classifier = Classifier()

    def decode_request(self, request: dict[str, str]) -> bytes:
        """Return the bytes of the image."""
        return bytes.fromhex(request["image"])

    def batch(self, inputs: list[bytes]) -> list[bytes]:
        """Return the images as they are: the model joins them."""
        return inputs

    def predict(self, bodies: list[bytes]) -> list[int]:
        """Return the labels of a batch."""
        return self._classifier.classify(bodies)

    def unbatch(self, output: list[int]) -> list[int]:
        """Return one label per request."""
        return output

    def encode_response(self, label: int) -> dict[str, int]:
        """Return the JSON body."""
        return {"label": label}


def build(app: str) -> litserve.LitAPI:
    """Return the API of an application."""
    if app == "echo":
        return Echo(api_path="/echo")
    return Batched(api_path="/batched", max_batch_size=options.BATCH, batch_timeout=options.WAIT_S)


def main() -> None:
    """Serve one application until SIGTERM."""
    app, port = sys.argv[1:]
    settings: dict[str, Any] = {"access_log": False}
    server = litserve.LitServer(build(app), accelerator="cpu", workers_per_device=1)
    server.run(
        host=options.HOST,
        port=int(port),
        log_level="warning",
        generate_client_file=False,
        **settings,
    )


if __name__ == "__main__":
    main()
