"""curator (bespokelabs-curator) with its OpenAI backend: limits per minute raised out of the way, and rows without a reply left out."""

import os
from importlib.util import find_spec
from pathlib import Path

_LITELLM = find_spec("litellm")
assert _LITELLM is not None
assert _LITELLM.origin is not None
_TOKENIZERS = Path(_LITELLM.origin).parent / "litellm_core_utils" / "tokenizers"
os.environ |= {
    "TELEMETRY_ENABLED": "false",  # otherwise it reports its use to a server
    "CURATOR_DISABLE_RICH_DISPLAY": "1",
    "TIKTOKEN_CACHE_DIR": str(_TOKENIZERS),  # has the table that it would otherwise download
}

# Imported after the settings, which it reads at import; pyright does not see the environment that it is installed in.
from bespokelabs import curator  # noqa: E402  # pyright: ignore[reportMissingImports]

_UNLIMITED = 1_000_000_000


class _Labeler(curator.LLM):
    def prompt(self, input):
        return input["prompt"]

    def parse(self, input, response):
        return {"id": input["id"], "text": response}


def label(base_url, rows, concurrency, output):
    """The texts of the replies in the dataset that curator made."""
    limits = {
        "base_url": base_url,
        "api_key": "none",
        "max_concurrent_requests": concurrency,
        "max_requests_per_minute": _UNLIMITED,
        "max_tokens_per_minute": _UNLIMITED,
        "require_all_responses": False,
    }
    labeler = _Labeler(model_name="mock", backend="openai", backend_params=limits, generation_params={"temperature": 0.0})
    made = labeler(rows, working_dir=str(output))
    return getattr(made, "dataset", made)["text"]
