"""A reply as it arrives: what the decoder does, and at the end its answer, as server-sent events."""

import asyncio
from collections.abc import AsyncIterator

from infer.serving.errors import ApiError
from infer.serving.reply import Shown, closing_chunks, error_event, opening_chunk, step_chunk
from infer.serving.request import ChatBody
from refinery.contract.trace import Prediction, TraceStep

_KEEP_ALIVE_SECONDS = 10.0


async def events(
    body: ChatBody,
    completion_id: str,
    answering: "asyncio.Future[Prediction]",
    steps: "asyncio.Queue[TraceStep | None]",
    shown: Shown,
) -> AsyncIterator[str]:
    """The stream: each step as it happens, a comment after some seconds of silence to keep the connection open, and then the answer."""
    try:
        yield opening_chunk(body, completion_id)
        async for step in _until_done(steps):
            yield step_chunk(body, completion_id, step) if step else ": thinking\n\n"
        for event in closing_chunks(body, answering.result(), shown):
            yield event
    except ApiError as error:
        yield error_event(error)
    finally:
        answering.cancel()


async def _until_done(steps: "asyncio.Queue[TraceStep | None]") -> AsyncIterator[TraceStep | None]:
    """The steps until the end of the queue, which is None; here None means that there was none for some seconds."""
    while True:
        try:
            async with asyncio.timeout(_KEEP_ALIVE_SECONDS):
                step = await steps.get()
        except TimeoutError:
            yield None
        else:
            if step is None:
                return
            yield step
