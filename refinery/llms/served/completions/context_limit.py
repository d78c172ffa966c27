"""The longest context that a server accepts, and the length of a text for a model whose tokenizer is unknown."""

import asyncio
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, PositiveInt, ValidationError

from refinery.llms.served.endpoint import EndpointConfig
from refinery.llms.served.protocols.base import protocol_of
from refinery.llms.served.transport.http import LONG_HEADERS

_SECONDS = 10.0
# English and Chinese tokens have more bytes than this, so a text that fits by this count is rarely too long.
_BYTES_PER_TOKEN = 3


class _Model(BaseModel):
    id: str
    max_model_len: PositiveInt | None = None


class _Models(BaseModel):
    data: list[_Model]


async def served_context_limit(config: EndpointConfig) -> int | None:
    """The most tokens of prompt and reply together: the minimum of all addresses' `max_model_len` (vLLM, SGLang), or None if unknown."""
    found = await asyncio.gather(*(_limit_at(config, base_url) for base_url in config.base_urls if base_url))
    return min((limit for limit in found if limit is not None), default=None)


async def _limit_at(config: EndpointConfig, base_url: str) -> int | None:
    import aiohttp

    address = protocol_of(config).address(config, base_url)
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, **LONG_HEADERS) as session,
            session.get(f"{address.base}/models{address.query}", headers=address.headers, allow_redirects=False) as response,
        ):
            models = _Models.model_validate_json(await response.read())
    except (aiohttp.ClientError, TimeoutError, OSError, ValidationError):
        return None  # the first request will report a server that is gone or refuses the key
    return next((model.max_model_len for model in models.data if model.id == config.model), None)


class ByteTokens:
    """Counts three bytes as a token, for a chat model whose tokenizer is unknown."""

    bos_token_id = chat_template = None

    def __call__(self, text: str, *args: Any, **options: Any) -> dict[str, list[bytes]]:
        """The tokens of a text, as from a tokenizer."""
        content = text.encode()
        return {"input_ids": [content[at : at + _BYTES_PER_TOKEN] for at in range(0, len(content), _BYTES_PER_TOKEN)]}

    def decode(self, token_ids: Sequence[bytes], **options: Any) -> str:
        """The text of some tokens, without characters that were cut in two."""
        return b"".join(token_ids).decode(errors="ignore")
