"""Requests sent by the client of an endpoint, and what came of them."""

import asyncio

from refinery.errors import LLMError
from refinery.llms.served.endpoint import EndpointConfig, Reply
from refinery.llms.served.transport.chat_request import ChatRequest
from refinery.llms.served.transport.client import EndpointClient


def ask(prompts, base_url, *, schema=None, seconds=30.0, first=(), **config) -> list[Reply | LLMError]:
    """The outcomes of requests that are sent at once, after `first` one by one; a traceback of the client is raised."""
    values = {"model": "m", "base_url": base_url, "max_tries": 2} | config

    async def one(chat: EndpointClient, prompt: str) -> Reply | LLMError:
        try:
            return await chat.reply(ChatRequest(b"", (("user", prompt),), schema))
        except LLMError as error:
            return error

    async def run() -> list[Reply | LLMError]:
        chat = EndpointClient(EndpointConfig(**values))
        try:
            async with asyncio.timeout(seconds):
                before = [await one(chat, prompt) for prompt in first]
                return before + await asyncio.gather(*(one(chat, prompt) for prompt in prompts))
        finally:
            await chat.close()

    return asyncio.run(run())


def texts(outcomes):
    return [outcome.text if isinstance(outcome, Reply) else str(outcome) for outcome in outcomes]
