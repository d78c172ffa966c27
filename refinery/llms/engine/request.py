"""A request to the Hugging Face engine: one decoder's wish, served with others in a micro-batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from refinery.llms.base import Usage
from refinery.llms.engine.decoding import Branch
from refinery.llms.engine.prefix_tree import Adapter, PrefixNode


class RequestContext(Protocol):
    """What a request needs to know of the engine's context."""

    usage: Usage
    length: int

    def node(self) -> PrefixNode:
        """Where the context ends in the engine's tree."""
        ...

    def text_of(self, written: Sequence[int]) -> str:
        """What was written, without special tokens."""
        ...


@dataclass(slots=True, eq=False)
class Request:
    """What a decoder waits for: text written after `context`, or the log-probabilities of `targets` there.

    `targets` are either the tokens by which `context` continues `after`, or alternatives for what follows `context`. `branch` is the
    text as far as it is written; `was_alone` of one for which memory did not suffice although nothing else was computed.
    """

    context: RequestContext
    adapter: Adapter
    targets: tuple[int, ...] = ()
    after: RequestContext | None = None
    max_new_tokens: int = 0
    stop_ids: frozenset[int] = frozenset()
    stop_texts: tuple[str, ...] = ()
    temperature: float = 0.0
    branch: Branch | None = None
    was_alone: bool = False

    def end(self) -> PrefixNode:
        """The last node of what there is so far."""
        return self.branch.node if self.branch else self.context.node()

    def node(self) -> PrefixNode:
        """The node that must be computed. A generation feeds the context's last token itself, and a single token is scored without it.

        A text that is scored is computed whole, although its last token need not be: what goes on after it would compute that one alone.
        """
        node = self.end()
        if self.max_new_tokens or (self.after is not None and len(self.targets) == 1):
            assert node.parent is not None, "the engine's root has no tokens to begin with"
            return node.parent
        return node

    def begin(self) -> Branch:
        """The text before anything of it is written."""
        usage = self.context.usage
        return Branch(self.end(), self.adapter, self.max_new_tokens, self._is_over, self.temperature, usage)

    def text_key(self) -> object:
        """The same for requests whose text is the same: greedy ones after equal contexts, written once from the first token on."""
        if self.branch or self.temperature > 0:
            return id(self.branch or self)
        return id(self.end()), self.adapter, self.max_new_tokens, self.stop_ids, self.stop_texts

    def tokens(self, result: Any) -> tuple[int, int]:
        """How many tokens its model read, and how many it wrote in a `result` that is a text."""
        return self.context.length, len(result.token_ids) if self.max_new_tokens else 0

    def _is_over(self, written: Sequence[int]) -> bool:
        """Whether a reply ends with its last token: at a stop token, or because it holds a stop text now."""
        if written[-1] in self.stop_ids:
            return True
        text = self.context.text_of(written) if self.stop_texts else ""
        return any(stop in text for stop in self.stop_texts)

    @property
    def length(self) -> int:
        """Tokens of the context with all that may be written."""
        return self.context.length + self.max_new_tokens
