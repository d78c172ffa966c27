"""The handlers of the chat API: which models there are, whether they are well, and what they answer."""

import asyncio
import logging
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from infer.pipeline import Pipeline
from infer.recipe import PipelineRecipe
from infer.serving.errors import ApiError
from infer.serving.formats import completions, responses
from infer.serving.formats.chat import ChatFormat
from infer.serving.formats.completions import CompletionsFormat
from infer.serving.formats.responses import ResponsesFormat
from infer.serving.housekeeping import housekeep, task_of
from infer.serving.reply import Answer, Format, Happened, Shown, events
from infer.serving.request import ChatBody, parse_body
from infer.session import Session
from infer.steps.cited_answer import WRITER
from refinery.contract.chat_template import has_template
from refinery.contract.records import Question
from refinery.contract.tokenizer import Tokenizer
from refinery.contract.trace import Prediction
from refinery.errors import RecordError, RefineryError
from refinery.runtime.http_checks import Guard, read_json_body
from refinery.runtime.observe import telemetry
from refinery.runtime.observe.prometheus import CONTENT_TYPE, OTHER, ServerMetrics

_log = logging.getLogger(__name__)
_MOST_BODY_BYTES = 64 << 20  # interfaces send the pictures of earlier turns again


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How a server treats its clients.

    `steps` streams what the decoder does as reasoning, `sources` lists the passages under each answer (they always are under one with
    citations), and `housekeeping` recognizes titles, tags and follow-ups, which are not searched. `origins` are the sites whose pages may
    ask from a browser; `*` is any.
    """

    timeout_seconds: float = 600.0
    steps: bool = True
    sources: bool = False
    housekeeping: bool = True
    origins: tuple[str, ...] = ()


def model_name(recipe: PipelineRecipe) -> str:
    """The model name that clients use for the decoder."""
    return recipe.name or recipe.decoder


class Served:
    """A loaded decoder under the name that clients use for it, and how many questions it is answering."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline, self.name, self.created = pipeline, model_name(pipeline.recipe), int(time.time())
        self.in_flight = 0

    @property
    def card(self) -> dict[str, Any]:
        """The decoder in the list of models."""
        return {"id": self.name, "object": "model", "created": self.created, "owned_by": "refinery"}

    @property
    def health(self) -> dict[str, Any]:
        """The decoder and what it searches; `corpus_hash` is null for a corpus that has none, such as the web."""
        retriever = self.pipeline.retriever
        return {
            "decoder": self.pipeline.recipe.decoder,
            "retriever": self.pipeline.recipe.retriever.name if self.pipeline.recipe.retriever else None,
            "corpus_hash": retriever.corpus_hash if retriever else None,
            "in_flight": self.in_flight,
        }

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer of the served model, or None if only its endpoint has one."""
        return self.pipeline.llm.tokenizer if self.pipeline.recipe.tokenizer else None

    @property
    def chats(self) -> bool:
        """Whether the model was trained to follow instructions: it has a chat template, or is a chat endpoint."""
        return self.tokenizer is None or has_template(self.tokenizer)

    def check_seed(self, seed: int | None) -> None:
        """Raise ApiError (400) for a seed if a model draws from other numbers than those of this process."""
        recipe = self.pipeline.recipe
        if seed is not None and (recipe.served or (recipe.llm and recipe.llm.engine != "transformers")):
            fault = f"seed: has no effect on '{self.name}', which does not draw its tokens with our engine. Leave it out."
            raise ApiError(400, fault, parameter="seed")

    def begin(self) -> None:
        """Count a question. Raises ApiError (429) if there are as many as the recipe allows."""
        if self.in_flight >= self.pipeline.recipe.questions_in_flight:
            raise ApiError(429, f"{self.in_flight} questions are being answered, which is the limit. Ask again later.")
        self.in_flight += 1

    def end(self, answering: "asyncio.Future[Prediction]") -> None:
        """Count a question no more; called when its answer, or an error, is there."""
        self.in_flight -= 1
        if not answering.cancelled():
            answering.exception()  # retrieve it here, because the client may have disconnected


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that is being answered, and what a client is told of it meanwhile."""

    question: Question
    answering: "asyncio.Future[Prediction]"
    happened: "asyncio.Queue[Happened]"
    shown: Shown


class Service:
    """The request handlers, for decoders whose names differ."""

    def __init__(self, pipelines: Sequence[Pipeline], guard: Guard, options: ServeOptions, metrics: ServerMetrics) -> None:
        self._guard, self._options, self._metrics = guard, options, metrics
        self._served = {served.name: served for served in map(Served, pipelines)}
        self._started = time.monotonic()
        for name in self._served:
            metrics.count("questions", name, by=0)  # a series that begins at its first question would hide that one

    async def health(self, request: Request) -> Response:
        """Say which decoders run, over which corpora, and for how long. It needs no key."""
        self._guard.check_host(request.headers)
        models = {name: served.health for name, served in self._served.items()}
        return JSONResponse({"status": "ok", "uptime_seconds": round(time.monotonic() - self._started, 1), "models": models})

    async def metrics(self, request: Request) -> Response:
        """What Prometheus reads, with the key if there is one: it tells how much is asked."""
        self._guard.check(request.headers)
        return Response(self._metrics.page(), media_type=CONTENT_TYPE)

    async def models(self, request: Request) -> Response:
        """List the decoders."""
        self._guard.check(request.headers)
        return JSONResponse({"object": "list", "data": [served.card for served in self._served.values()]})

    async def model(self, request: Request) -> Response:
        """Describe one decoder."""
        self._guard.check(request.headers)
        return JSONResponse(self.named(request.path_params["model"]).card)

    async def chat(self, request: Request) -> Response:
        """Answer the last message in the context of its conversation."""
        return await self._reply(request, ChatFormat)

    async def completions(self, request: Request) -> Response:
        """Answer a prompt."""
        return await self._reply(request, CompletionsFormat, completions.to_chat, completions.NAMES)

    async def responses(self, request: Request) -> Response:
        """Answer the last item in the context of its conversation."""
        return await self._reply(request, ResponsesFormat, responses.to_chat, responses.NAMES)

    async def _reply(self, request: Request, kind: type[Format], *reading: Any) -> Response:
        """Read a request, and answer it in the same format."""
        self._guard.check(request.headers)
        body = parse_body(await read_json_body(request.headers, request.stream(), most_bytes=_MOST_BODY_BYTES), *reading)
        asked = self.ask(body, kind.id_prefix)
        form = kind(body, asked.question.id)
        if body.stream:
            return StreamingResponse(events(form, body, asked.answering, asked.happened, asked.shown), media_type="text/event-stream")
        return JSONResponse(form.whole(Answer.of(body, await _unless_gone(request, asked.answering), asked.shown)))

    def ask(self, body: ChatBody, id_prefix: str) -> Asked:
        """Begin to answer. Raises ApiError for an unknown model (404), one that is busy (429), and a seed that has no effect (400)."""
        served, question = self.named(body.model), body.question(id_prefix)
        served.check_seed(body.seed)
        happened: asyncio.Queue[Happened] = asyncio.Queue()
        served.begin()
        answering = asyncio.ensure_future(self._answer(served, body, question, happened))
        answering.add_done_callback(served.end)
        answering.add_done_callback(lambda _: happened.put_nowait(None))
        recipe = served.pipeline.recipe
        shown = Shown(
            tokenizer=served.tokenizer,
            with_sources=self._options.sources or recipe.cited is not None,
            abstaining=recipe.abstain.say if recipe.abstain else "",
        )
        return Asked(question, answering, happened, shown)

    async def _answer(self, served: Served, body: ChatBody, question: Question, happened: "asyncio.Queue[Happened]") -> Prediction:
        """The prediction, whose steps and text are put into the queue as they happen. Raises ApiError."""
        session = served.pipeline.session(question, temperature=body.temperature, seed=body.seed)
        task = task_of(body.messages) if self._options.housekeeping else None
        try:
            with _counted(self._metrics, served.name, session, is_question=task is None):
                async with asyncio.timeout(self._options.timeout_seconds):
                    if task is not None:
                        return await housekeep(task, body.messages, session, chats=served.chats, limit=body.limit)
                    self._tell(body, session, happened)
                    return await served.pipeline.answer(question, session=session)
        except TimeoutError:
            raise ApiError(504, f"no answer within {self._options.timeout_seconds:g} seconds", code="timeout") from None
        except RecordError as error:  # the question lacks something that the retriever or decoder needs
            raise ApiError(400, str(error)) from None
        except RefineryError as error:
            _log.warning("%s: %s", question.id, error)
            raise ApiError(502, str(error)) from None
        except Exception:
            _log.exception("%s: the decoder failed", question.id)
            raise ApiError(500, "the decoder failed; the server's log says why") from None

    def _tell(self, body: ChatBody, session: Session, happened: "asyncio.Queue[Happened]") -> None:
        """Let a session tell a client that waits for a stream what it does. A text that the client limits is sent when it can be cut."""
        loop = asyncio.get_running_loop()
        if self._options.steps:
            session.on_step = lambda step: happened.put_nowait(step) if step.name != WRITER else None
        if body.stream and body.limit is None and not body.stops:
            session.on_text = lambda text: loop.call_soon_threadsafe(happened.put_nowait, text)

    def named(self, name: str) -> Served:
        """The decoder that a client named. Raises ApiError (404)."""
        if name not in self._served:
            names = " or ".join(f"'{name}'" for name in self._served)
            raise ApiError(404, f"there is no model '{name}' here. Use {names}.", code="model_not_found", parameter="model")
        return self._served[name]


@contextmanager
def _counted(metrics: ServerMetrics, model: str, session: Session, *, is_question: bool) -> Generator[None]:
    """A block in which a served model answers: its tokens and searches count also if it fails, and its failure by reason."""
    try:
        yield
        if session.failed:  # a search, after which the decoder went on
            reason = session.failed.partition(":")[0]
            metrics.count("failures", model, reason if reason.isidentifier() else OTHER)
        metrics.count("questions", model, by=int(is_question))
    except BaseException as error:
        metrics.count("failures", model, telemetry.kind_of(error))
        raise
    finally:
        metrics.count("searches", model, by=session.retrievals)
        metrics.count("tokens", model, "prefill", by=session.usage.prefill_tokens)
        metrics.count("tokens", model, "decode", by=session.usage.decode_tokens)


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
