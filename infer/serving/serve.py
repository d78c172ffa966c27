"""Serve a decoder as OpenAI's `/v1/chat/completions`, on loopback by default and with limits on every request."""

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from infer.pipeline import Pipeline
from infer.recipe import PipelineRecipe
from infer.serving.chat import ApiError, ChatBody, closing_chunks, completion, error_event, opening_chunk, parse_body
from infer.serving.conversation import joined, standalone_question
from infer.session import Session
from refinery.contract.records import Question
from refinery.contract.tokenizer import Tokenizer
from refinery.contract.trace import Prediction
from refinery.errors import RecordError, RefineryError
from refinery.runtime.serving import Guard, RequestFault, listen, read_json_body, url_of
from refinery.text import printable

_log = logging.getLogger(__name__)
_MOST_BODY_BYTES = 1 << 20
_KEEP_ALIVE_SECONDS = 10.0
_SHUTDOWN_SECONDS = 30


def serve(recipe: PipelineRecipe, *, host: str, port: int, api_key_env: str | None, timeout_seconds: float) -> None:
    """Serve until SIGTERM or SIGINT; requests in flight then have up to 30 seconds to finish.

    Port 0 chooses a free port. Raises RecipeError for a host that others can reach without a key, or an address that is in use.
    """
    guard = Guard.of_server(host, api_key_env)
    listener = listen(host, port)
    pipeline = Pipeline(recipe)
    pipeline.load()
    app = build_app(pipeline, guard=guard, timeout_seconds=timeout_seconds)
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=_SHUTDOWN_SECONDS, server_header=False)
    print(f"{printable(model_name(recipe))} at {url_of(listener)}/v1", flush=True)
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: None)  # uvicorn raises the signal again after shutting down; ignoring it makes that a clean exit
    uvicorn.Server(config).run(sockets=[listener])


def build_app(pipeline: Pipeline, *, guard: Guard | None = None, timeout_seconds: float = 600.0) -> Starlette:
    """The ASGI application for a loaded pipeline; without a guard, anyone may send requests."""
    service = _Service(pipeline, guard or Guard(), timeout_seconds)
    routes = [
        Route("/v1/models", service.models),
        Route("/v1/models/{model:path}", service.model),
        Route("/v1/chat/completions", service.chat, methods=["POST"]),
    ]

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await pipeline.close()

    handlers: Any = {ApiError: _tell, RequestFault: _tell_fault, HTTPException: _tell_http}
    return Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)


def model_name(recipe: PipelineRecipe) -> str:
    """The model name that clients use for the decoder."""
    return recipe.name or recipe.decoder


class _Service:
    """The request handlers."""

    def __init__(self, pipeline: Pipeline, guard: Guard, timeout_seconds: float) -> None:
        self._pipeline, self._guard, self._timeout_seconds = pipeline, guard, timeout_seconds
        self._name, self._created = model_name(pipeline.recipe), int(time.time())
        self._in_flight = 0

    async def models(self, request: Request) -> Response:
        """List the decoder as the only model."""
        self._guard.check(request.headers)
        return JSONResponse({"object": "list", "data": [self._card()]})

    async def model(self, request: Request) -> Response:
        """Describe the decoder, if the name is its own."""
        self._guard.check(request.headers)
        self._check_name(request.path_params["model"])
        return JSONResponse(self._card())

    async def chat(self, request: Request) -> Response:
        """Answer the last message in the context of its conversation."""
        self._guard.check(request.headers)
        body = parse_body(await read_json_body(request.headers, request.stream(), most_bytes=_MOST_BODY_BYTES))
        self._check_name(body.model)
        if self._in_flight >= self._pipeline.recipe.questions_in_flight:
            raise ApiError(429, f"{self._in_flight} questions are being answered, which is the limit. Ask again later.")
        self._in_flight += 1
        question = body.question
        answering = asyncio.ensure_future(self._answer(question, body))
        answering.add_done_callback(self._answered)
        if body.stream:
            return StreamingResponse(_events(body, question.id, answering, self._tokenizer), media_type="text/event-stream")
        return JSONResponse(completion(body, await _unless_gone(request, answering), self._tokenizer))

    async def _answer(self, question: Question, body: ChatBody) -> Prediction:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await self._answer_in_conversation(question, body)
        except TimeoutError:
            raise ApiError(504, f"no answer within {self._timeout_seconds:g} seconds", code="timeout") from None
        except RecordError as error:  # the question lacks something that the retriever or decoder needs
            raise ApiError(400, str(error)) from None
        except RefineryError as error:
            _log.warning("%s: %s", question.id, error)
            raise ApiError(502, str(error)) from None
        except Exception:
            _log.exception("%s: the decoder failed", question.id)
            raise ApiError(500, "the decoder failed; the server's log says why") from None

    async def _answer_in_conversation(self, question: Question, body: ChatBody) -> Prediction:
        if not body.is_follow_up:
            return await self._pipeline.answer(question)
        session = Session(question=question, llm=self._pipeline.llm, retriever=None, passages_per_query=0)
        alone = await standalone_question(body.turns_before, session)
        return joined(session, await self._pipeline.answer(question.model_copy(update={"text": alone})))

    @property
    def _tokenizer(self) -> Tokenizer | None:
        """The tokenizer of the served model, or None if only its endpoint has one."""
        return self._pipeline.llm.tokenizer if self._pipeline.recipe.tokenizer else None

    def _answered(self, answering: "asyncio.Future[Prediction]") -> None:
        self._in_flight -= 1
        if not answering.cancelled():
            answering.exception()  # retrieve it here, because the client may have disconnected

    def _card(self) -> dict[str, Any]:
        return {"id": self._name, "object": "model", "created": self._created, "owned_by": "refinery"}

    def _check_name(self, name: str) -> None:
        if name != self._name:
            raise ApiError(404, f"there is no model '{name}' here. Use '{self._name}'.", code="model_not_found", parameter="model")


async def _events(
    body: ChatBody, completion_id: str, answering: "asyncio.Future[Prediction]", tokenizer: Tokenizer | None
) -> AsyncIterator[str]:
    """The stream; until the answer is there, a comment every few seconds keeps the connection open."""
    try:
        yield opening_chunk(body, completion_id)
        while not (await asyncio.wait([answering], timeout=_KEEP_ALIVE_SECONDS))[0]:
            yield ": thinking\n\n"
        for event in closing_chunks(body, answering.result(), tokenizer):
            yield event
    except ApiError as error:
        yield error_event(error)
    finally:
        answering.cancel()


async def _unless_gone(request: Request, answering: "asyncio.Future[Prediction]") -> Prediction:
    """The answer; computing it is canceled if the client disconnects."""
    gone = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait([answering, gone], return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            raise ApiError(499, "the client closed the connection")
        return answering.result()
    finally:
        gone.cancel()
        answering.cancel()


async def _tell(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return JSONResponse(error.body, status_code=error.status, headers={"Retry-After": "1"} if error.status == 429 else None)


async def _tell_fault(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestFault)
    return JSONResponse(ApiError(error.status, str(error), code=error.code).body, status_code=error.status)


async def _tell_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse(ApiError(error.status_code, f"{request.url.path}: {error.detail}").body, status_code=error.status_code)
