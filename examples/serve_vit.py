"""Serve the vision transformer of `train_vit.py` behind HTTP, with a page that classifies images.

    python examples/serve_vit.py                    # the latest checkpoint of train_vit.py
    python examples/serve_vit.py --checkpoint DIR   # a directory with model.pt
    syncline serve run --app-dir examples serve_vit:build checkpoint=DIR --reload

Without a checkpoint, the program first trains for two epochs on the sample. Requests that arrive at
the same time share a batch: `POST /classify` takes a JPEG or PNG and returns the probability of
each class, the size of the batch, and the milliseconds in the model.
"""

import argparse
import io
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from fastapi import FastAPI, HTTPException
from fastapi.responses import HTMLResponse, Response
from PIL import Image, UnidentifiedImageError
from starlette.requests import Request

from syncline import serve, settings
from train_vit import IMAGE_SIZE, SAMPLE, VisionTransformer, scaled

HERE = Path(__file__).resolve().parent
LABELS = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
SAMPLES = 24
"""Number of held-out images on the page."""

web = FastAPI(title="CIFAR-10 classifier")


@serve.deployment(max_ongoing_requests=64, max_queued_requests=1000)
@serve.ingress(web)
class Classifier:
    """A replica: the model, and the routes of the application."""

    def __init__(self, checkpoint: str) -> None:
        torch.set_num_threads(1)  # the CPU that a replica reserves
        self.model = VisionTransformer()
        weights = torch.load(Path(checkpoint) / "model.pt", map_location="cpu", weights_only=True)
        self.model.load_state_dict(weights)
        self.model.eval()
        rows = pq.read_table(next((SAMPLE / "test").glob("*.parquet"))).slice(0, SAMPLES)
        self.samples = rows.to_pylist()

    @serve.batch(max_batch_size=32, batch_wait_timeout_s="auto")
    async def predict(self, images: list[np.ndarray]) -> list[dict[str, Any]]:
        """Classify images of (32, 32, 3) uint8; return a prediction for each."""
        began = time.perf_counter()
        batch = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)
        with torch.inference_mode():
            probabilities = self.model(scaled(batch)).softmax(1).tolist()
        took_ms = (time.perf_counter() - began) * 1000
        return [
            {
                "label": LABELS[int(np.argmax(row))],
                "probabilities": dict(zip(LABELS, row, strict=True)),
                "batch_size": len(images),
                "model_ms": took_ms,
            }
            for row in probabilities
        ]

    @web.get("/", response_class=HTMLResponse)
    def page(self) -> str:
        return (HERE / "serve_vit.html").read_text(encoding="utf-8")

    @web.get("/samples")
    def labels_of_samples(self) -> list[str]:
        return [LABELS[row["label"]] for row in self.samples]

    @web.get("/samples/{number}")
    def sample(self, number: int) -> Response:
        if not 0 <= number < len(self.samples):
            raise HTTPException(404, f"there are {len(self.samples)} samples")
        return Response(self.samples[number]["image"], media_type="image/jpeg")

    @web.post("/classify")
    async def classify(self, request: Request) -> dict[str, Any]:
        try:
            image = decoded(await request.body())
        except (UnidentifiedImageError, OSError, Image.DecompressionBombError):
            raise HTTPException(400, "the body is neither a JPEG nor a PNG image") from None
        return await self.predict(image)


def decoded(body: bytes) -> np.ndarray:
    """Return the middle square of an image, scaled to (32, 32, 3) uint8."""
    with Image.open(io.BytesIO(body), formats=("JPEG", "PNG")) as image:
        side = min(image.size)
        left, top = (image.width - side) // 2, (image.height - side) // 2
        square = image.convert("RGB").crop((left, top, left + side, top + side))
        return np.asarray(square.resize((IMAGE_SIZE, IMAGE_SIZE), Image.Resampling.BILINEAR))


def build(args: dict[str, str]) -> serve.Application:
    """Return the application; the function that `syncline serve run` calls."""
    return Classifier.bind(args.get("checkpoint") or str(checkpoint_or_train()))


def checkpoint_or_train() -> Path:
    """Return the latest checkpoint of train_vit.py; train briefly if it does not exist."""
    found = latest_checkpoint()
    if found is None:
        print("No checkpoint of train_vit.py: training for two epochs (`make demo` trains eight).")
        command = [sys.executable, str(HERE / "train_vit.py"), "--epochs", "2"]
        subprocess.run(command, check=True)
        found = latest_checkpoint()
    if found is None:
        raise FileNotFoundError("train_vit.py left no checkpoint: pass --checkpoint DIR")
    return found


def latest_checkpoint() -> Path | None:
    """Return the latest directory of a checkpoint with weights of this model, if any."""
    folders = Path(settings.storage_path()).expanduser().glob("*/checkpoint_*")
    dated = [(folder.stat().st_mtime, folder) for folder in folders if fits(folder / "model.pt")]
    return max(dated)[1] if dated else None


def fits(file: Path) -> bool:
    """Return True if a file has the weights of this model."""
    try:
        weights = torch.load(file, map_location="cpu", weights_only=True)
        VisionTransformer().load_state_dict(weights)
    except Exception:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve the vision transformer of train_vit.py.")
    parser.add_argument(
        "--checkpoint", help="directory with model.pt (default: the latest of train_vit.py)"
    )
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--replicas", type=int, default=1)
    arguments = parser.parse_args()
    checkpoint = arguments.checkpoint or str(checkpoint_or_train())
    serve.start(http_options={"port": arguments.port})
    classifier = Classifier.options(num_replicas=arguments.replicas)
    serve.run(classifier.bind(str(Path(checkpoint).resolve())))
    print(f"checkpoint {checkpoint}")
    print(f"http://127.0.0.1:{arguments.port}/ classifies images; Ctrl-C ends it", flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        serve.shutdown()


if __name__ == "__main__":
    main()
