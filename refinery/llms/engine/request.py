"""A request to the Hugging Face engine, which serves it together with others in a micro-batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from refinery.llms.base import Usage
from refinery.llms.engine.decoding import Branch
from refinery.llms.engine.prefix_tree import Adapter, PrefixNode

_TOLD_EVERY = 4  # tokens, because each time all of the text is decoded


class RequestContext(Protocol):
    """The part of the engine's context that a request uses."""

    usage: Usage
    length: int

    def node(self) -> PrefixNode:
        """The context's last node in the engine's tree."""
        ...

    def text_of(self, written: Sequence[int]) -> str:
        """The written text, without special tokens."""
        ...


@dataclass(slots=True, eq=False)
class Request:
    """A decoder's request: text to write after `context`, or the log-probabilities of `targets` there.

    `targets` are either the tokens that `context` adds to `after`, or alternatives for the token after `context`. `branch` is the text
    written so far. `was_alone` is set when memory did not suffice although the request was the only one in its batch. `on_write` is called
    with the tokens so far every few tokens.
    """

    context: RequestContext
    adapter: Adapter
    targets: tuple[int, ...] = ()
    after: RequestContext | None = None
    max_new_tokens: int = 0
    stop_ids: frozenset[int] = frozenset()
    stop_texts: tuple[str, ...] = ()
    temperature: float = 0.0
    on_write: Callable[[Sequence[int]], None] | None = None
    avoid: tuple[int, ...] = ()
    branch: Branch | None = None
    was_alone: bool = False

    def end(self) -> PrefixNode:
        """The last node of the context and the text so far."""
        return self.branch.node if self.branch else self.context.node()

    def node(self) -> PrefixNode:
        """The node that must be computed. A generation feeds the context's last token itself, and a single token is scored without it.

        A scored text is computed in full, although its last token need not be: a continuation would otherwise compute that token alone.
        """
        node = self.end()
        if self.max_new_tokens or (self.after is not None and len(self.targets) == 1):
            assert node.parent is not None, "the engine's root has no tokens to begin with"
            return node.parent
        return node

    def begin(self) -> Branch:
        """A branch for the text, with no tokens written yet."""
        usage = self.context.usage
        return Branch(self.end(), self.adapter, self.max_new_tokens, self._is_over, self.temperature, usage, avoid=self.avoid)

    def text_key(self) -> object:
        """A key that requests for the same text share: greedy ones after equal contexts, which are written only once."""
        if self.branch or self.temperature > 0 or self.on_write:
            return id(self.branch or self)
        return id(self.end()), self.adapter, self.max_new_tokens, self.stop_ids, self.stop_texts, self.avoid

    def tokens(self, result: Any) -> tuple[int, int]:
        """The number of tokens that the model read, and the number that it wrote if `result` is a text."""
        return self.context.length, len(result.token_ids) if self.max_new_tokens else 0

    def _is_over(self, written: Sequence[int]) -> bool:
        """Whether a reply ends with its last token: that is a stop token, or completes a stop text. Also tells who reads along."""
        if self.on_write and len(written) % _TOLD_EVERY == 0:
            self.on_write(written)
        if written[-1] in self.stop_ids:
            return True
        text = self.context.text_of(written) if self.stop_texts else ""
        return any(stop in text for stop in self.stop_texts)

    @property
    def length(self) -> int:
        """Tokens of the context plus the most that may be written."""
        return self.context.length + self.max_new_tokens


def read_whole(writing: Sequence[Request]) -> list[Request]:
    """The new texts whose prefix has to be computed and that no other text shares. Reading the last token with it saves a step."""
    ends: dict[tuple[int, Adapter], set[int]] = {}
    for request in writing:
        ends.setdefault((id(request.node()), request.adapter), set()).add(id(request.end()))
    new = [request for request in writing if request.branch is None and request.adapter not in request.node().states]
    return [request for request in new if len(ends[id(request.node()), request.adapter]) == 1]
