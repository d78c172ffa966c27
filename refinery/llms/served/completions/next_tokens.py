"""Continuations of a prefix: log-probabilities of its next tokens, and the texts after these tokens, with as few requests as possible.

A node of a tree asks for both at once. A model that was trained for the tree begins with one of the node's tokens by itself, so one greedy
request from the prefix reads all of them and writes the text after the likeliest. Only the other texts take a request each.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from refinery.llms.served.completions.api import CompletionReply, CompletionRequest
from refinery.llms.served.endpoint import RefusedRequest
from refinery.runtime.concurrency.batching import Batcher
from refinery.runtime.concurrency.single_flight import SingleFlight

Send = Callable[[CompletionRequest], Awaitable[CompletionReply]]
# Reads the log-probabilities of tokens, with requests that do nothing else.
Read = Callable[[Sequence[int]], Awaitable[list[float]]]
# The request that reads tokens while it writes like another request, and the log-probabilities of these tokens in the reply.
ReadWhileWriting = Callable[[CompletionRequest, Sequence[int]], CompletionRequest]
Logprobs = Callable[[CompletionReply, Sequence[int]], list[float]]


@dataclass(frozen=True, slots=True)
class Branching:
    """How a prefix is read and continued. `while_writing` is None if the server cannot do both in one request."""

    send: Send
    read: Read
    while_writing: tuple[ReadWhileWriting, Logprobs] | None


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A token whose log-probability is wanted. With `request`, which can write it alone, the text after the token is wanted too."""

    token: int
    request: CompletionRequest | None = None


class Branches:
    """The next tokens of one prefix. `wrote_another`: the model began with a token that was not requested, so its text was wasted."""

    def __init__(self, branching: Branching) -> None:
        self._branching = branching
        self._known: dict[int, float] = {}
        self._together: Batcher[_Wanted, _Group] = Batcher(self._group)
        self.wrote_another = False

    async def logprob(self, token: int) -> float:
        """The token's log-probability. Tokens requested at the same time are read in one request, and none is read twice."""
        if token not in self._known:
            group = await self._together(_Wanted(token))
            await group.read()
        return self._known[token]

    async def behind(self, token: int, request: CompletionRequest) -> CompletionReply:
        """The reply to a request whose prompt is the prefix and the token."""
        group = await self._together(_Wanted(token, request))
        return await group.reply(token, request)

    async def _group(self, wanted: Sequence[_Wanted]) -> list["_Group"]:
        tokens = list(dict.fromkeys(one.token for one in wanted if one.request is None and one.token not in self._known))
        texts = {one.token: one.request for one in wanted if one.request is not None and one.token in tokens}
        return [_Group(self._branching, tokens, _alike(texts), self._known, self)] * len(wanted)


class _Group:
    """Simultaneous requests for one prefix: `tokens` to read, and greedy `texts` after some of them, which may be written too."""

    def __init__(
        self,
        branching: Branching,
        tokens: Sequence[int],
        texts: dict[int, CompletionRequest],
        known: dict[int, float],
        branches: Branches,
    ) -> None:
        self._branching, self._tokens, self._known, self._branches = branching, tokens, known, branches
        self._texts = texts if branching.while_writing else {}
        self._once: SingleFlight[str, None] = SingleFlight()
        self._written: CompletionReply | None = None

    async def read(self) -> None:
        """Make every token known."""
        if any(token not in self._known for token in self._tokens):
            await self._once("read", self._read)

    async def reply(self, token: int, request: CompletionRequest) -> CompletionReply:
        """The text after a token: already written if the model began with this token, else the reply to a separate request."""
        if self._texts.get(token) == request:
            await self.read()
            if self._written is not None and (self._written.token_ids or [])[:1] == [token]:
                return _after_first(self._written, request.max_tokens)
        return await self._branching.send(request)

    async def _read(self) -> None:
        if all(token in self._known for token in self._tokens):
            return
        if not (self._texts and await self._read_while_writing()):
            self._learn(await self._branching.read(self._tokens))

    async def _read_while_writing(self) -> bool:
        """Whether the tokens were read, along with a useful or wasted text. A server may refuse the longer request."""
        assert self._branching.while_writing is not None
        to_request, logprobs = self._branching.while_writing
        requests = list(self._texts.values())
        longest = max(request.max_tokens for request in requests)
        try:
            reply = await self._branching.send(to_request(replace(requests[0], max_tokens=longest + 1), self._tokens))
        except RefusedRequest as error:
            if error.reason != "refused":
                raise
            return False
        self._written = reply
        self._learn(logprobs(reply, self._tokens))
        self._branches.wrote_another = (reply.token_ids or [None])[0] not in self._texts
        return True

    def _learn(self, logprobs: Sequence[float]) -> None:
        self._known.update(zip(self._tokens, logprobs, strict=True))


def _alike(texts: dict[int, CompletionRequest]) -> dict[int, CompletionRequest]:
    """The greedy requests that differ from the first one in their prompts and lengths only."""
    greedy = {token: request for token, request in texts.items() if request.temperature == 0}
    first = next(iter(greedy.values()), None)
    return {token: request for token, request in greedy.items() if first and request.values == first.values}


def _after_first(reply: CompletionReply, most: int) -> CompletionReply:
    """The reply that a request of at most `most` tokens would have received after this reply's first token."""
    token_ids, logprobs = (reply.token_ids or [])[1:], (reply.logprobs or [])[1:]
    finish = reply.finish_reason if len(token_ids) <= most else "length"
    return replace(reply, token_ids=token_ids[:most], logprobs=logprobs[:most], finish_reason=finish)
