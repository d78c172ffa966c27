"""Chat with any OpenAI-compatible endpoint: one request, its retries, and what it cost. Knows nothing of labels or stores."""

import asyncio
import os
import random
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from refinery.errors import LLMError
from refinery.recipe import Recipe

# A failed request waits base * 2^try seconds at most, with full jitter, unless the server says how long (Retry-After).
_BACKOFF_SECONDS, _BACKOFF_CAP_SECONDS = 0.5, 30.0


class EndpointConfig(Recipe):
    """An OpenAI-compatible endpoint. The key is read from the environment and never written anywhere."""

    base_url: str | None = Field(None, description="where the endpoint is; None is OpenAI itself")
    model: str = Field(description="model name as the endpoint knows it")
    api_key_env: str = Field("OPENAI_API_KEY", description="environment variable that holds the key; unset sends no key")
    temperature: float = Field(0.0, description="RQ-RAG's curation uses 0")
    max_tokens: int = Field(500, description="RQ-RAG's curation uses 500")
    calls_in_flight: int = Field(32, description="requests open at once", ge=1)
    max_tries: int = Field(5, description="tries per request for errors that may pass (429, 5xx, connection)", ge=1)
    timeout_seconds: float = Field(120.0, description="deadline of one try", gt=0)


@dataclass(frozen=True, slots=True)
class Reply:
    """One chat reply: its text, why it ended, the request's id and its tokens."""

    text: str
    finish_reason: str
    request_id: str
    num_prompt_tokens: int
    num_completion_tokens: int


class RefusedRequest(LLMError):
    """The endpoint rejected this one request (400, content filter); others may go through."""


class ChatEndpoint:
    """Sends single-message chats with bounded concurrency; `retries` counts repeated tries."""

    def __init__(self, config: EndpointConfig) -> None:
        from openai import AsyncOpenAI

        self.config = config
        self.retries = 0
        self._gate = asyncio.Semaphore(config.calls_in_flight)
        # One retry layer, ours: the client's own would multiply it and hide Retry-After.
        self._client = AsyncOpenAI(
            base_url=config.base_url,
            api_key=os.environ.get(config.api_key_env) or "none",
            max_retries=0,
            timeout=config.timeout_seconds,
        )

    async def reply(self, prompt: str, *, json_schema: dict[str, Any] | None = None) -> Reply:
        """One reply to one user message. Raises RefusedRequest for this request's own fault, LLMError when the endpoint is unusable."""
        import openai

        for attempt in range(1, self.config.max_tries + 1):
            try:
                async with self._gate:
                    return await self._send(prompt, json_schema)
            except (openai.RateLimitError, openai.InternalServerError, openai.APIConnectionError) as error:
                if attempt == self.config.max_tries:
                    raise LLMError(self._unusable(error)) from None
                self.retries += 1
                await asyncio.sleep(_wait_seconds(error, attempt))
            except (openai.AuthenticationError, openai.PermissionDeniedError, openai.NotFoundError) as error:
                raise LLMError(f"{self._unusable(error)} Check base_url, model and ${self.config.api_key_env}.") from None
            except openai.APIStatusError as error:
                raise RefusedRequest(f"status {error.status_code}: {error.message}") from None
        raise AssertionError("unreachable: the last try returns or raises")

    async def _send(self, prompt: str, json_schema: dict[str, Any] | None) -> Reply:
        extra: dict[str, Any] = {}
        if json_schema is not None:
            schema = {"name": json_schema.get("title", "reply"), "schema": json_schema}
            extra["response_format"] = {"type": "json_schema", "json_schema": schema}
        completion = await self._client.chat.completions.create(
            model=self.config.model,
            messages=[{"role": "user", "content": prompt}],
            temperature=self.config.temperature,
            max_tokens=self.config.max_tokens,
            **extra,
        )
        if not completion.choices:
            raise RefusedRequest("the reply has no choices")
        choice, usage = completion.choices[0], completion.usage
        return Reply(
            text=choice.message.content or "",
            finish_reason=choice.finish_reason,
            request_id=completion.id,
            num_prompt_tokens=usage.prompt_tokens if usage else 0,
            num_completion_tokens=usage.completion_tokens if usage else 0,
        )

    def _unusable(self, error: Exception) -> str:
        where = self.config.base_url or "OpenAI"
        return f"endpoint {where} (model '{self.config.model}') cannot be used: {error}"

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def _wait_seconds(error: Exception, attempt: int) -> float:
    response = getattr(error, "response", None)
    asked = response.headers.get("retry-after") if response is not None else None
    try:
        return float(asked) * random.uniform(1.0, 1.25)  # noqa: S311 - jitter, not a secret
    except (TypeError, ValueError):
        return random.uniform(0, min(_BACKOFF_CAP_SECONDS, _BACKOFF_SECONDS * 2**attempt))  # noqa: S311
