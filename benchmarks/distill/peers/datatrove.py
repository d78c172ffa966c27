"""datatrove's InferenceRunner against an endpoint server: no checkpoints, which is its fastest form, and refused rows skipped."""

import gzip
import json

# pyright does not see the environment that these are installed in.
from datatrove.data import Document  # pyright: ignore[reportMissingImports]
from datatrove.pipeline.inference.run_inference import InferenceConfig, InferenceRunner  # pyright: ignore[reportMissingImports]
from datatrove.pipeline.writers import JsonlWriter  # pyright: ignore[reportMissingImports]
from loguru import logger  # pyright: ignore[reportMissingImports]


def label(base_url, rows, concurrency, output):
    """The texts of the replies in the files that datatrove wrote."""
    logger.remove()
    config = InferenceConfig(
        server_type="endpoint",
        endpoint_url=base_url.removesuffix("/v1"),  # it appends the path itself
        model_name_or_path="mock",
        max_concurrent_generations=concurrency,
        default_generation_params={"temperature": 0.0},
    )
    runner = InferenceRunner(_reply, config, JsonlWriter(str(output)), skip_bad_requests=True)
    runner.run(Document(text=row["prompt"], id=row["id"]) for row in rows)
    return [text for path in output.glob("*.jsonl.gz") for text in _texts(path)]


async def _reply(document, generate):
    result = await generate({"messages": [{"role": "user", "content": document.text}]})
    return result.text


def _texts(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            yield from json.loads(line)["metadata"]["rollout_results"]
