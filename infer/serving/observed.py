"""Count requests, questions and what they cost, and continue the traces that requests belong to."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from infer.session import Session
from refinery.runtime.observe import telemetry
from refinery.runtime.observe.prometheus import OTHER, ServerMetrics


class ObservedRequests:
    """ASGI middleware around everything else. A request counts under its route's pattern, and until all of its reply is sent."""

    def __init__(self, app: ASGIApp, routes: Sequence[Route], metrics: ServerMetrics) -> None:
        self._app, self._routes, self._metrics = app, routes, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        path = next((route.path_format for route in self._routes if route.matches(scope)[0] is not Match.NONE), OTHER)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        with telemetry.continuing(headers), self._metrics.request(path) as answered:

            async def sent(message: Message) -> None:
                if message["type"] == "http.response.start":
                    answered.status = message["status"]
                await send(message)

            await self._app(scope, receive, sent)


@contextmanager
def counted(metrics: ServerMetrics, model: str, session: Session, *, is_question: bool) -> Generator[None]:
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
