"""The tree of token prefixes in use, their computed keys and values, and the budget that bounds these.

Contexts with the same beginning share nodes, so each token is computed only once. A node lives as long as a context or a longer prefix
needs it. Its keys and values may be evicted earlier, when the budget is needed for something else, and are then computed again. Only
the engine's thread uses the tree, but a node may be destroyed on any thread.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from weakref import WeakValueDictionary

import torch

Adapter = str | None
# A shared stretch shorter than this is not worth a separate forward pass, so it is computed once for each prefix.
_SHORTEST_SHARED = 16


class TokenLedger:
    """Counts the tokens whose keys and values are held; states that die on any thread report here."""

    def __init__(self) -> None:
        self._held = 0
        self.freed: deque[int] = deque()

    @property
    def held(self) -> int:
        """Tokens held now."""
        while self.freed:
            self._held -= self.freed.popleft()
        return self._held

    def add(self, tokens: int) -> None:
        """Count newly held tokens."""
        self._held += tokens


class NodeState:
    """A node's own tokens as computed under one adapter: per layer keys and values (heads, tokens, dim), and hidden (tokens, hidden)."""

    __slots__ = ("_ledger", "hidden", "layers")

    def __init__(self, layers: list[tuple[torch.Tensor, torch.Tensor]], hidden: torch.Tensor, ledger: TokenLedger) -> None:
        self.layers, self.hidden, self._ledger = layers, hidden, ledger
        ledger.add(hidden.shape[0])

    def __del__(self) -> None:
        self._ledger.freed.append(self.hidden.shape[0])

    def slice(self, start: int, stop: int) -> "NodeState":
        """A copy of some of its tokens."""
        layers = [(keys[:, start:stop].clone(), values[:, start:stop].clone()) for keys, values in self.layers]
        return NodeState(layers, self.hidden[start:stop].clone(), self._ledger)


class PrefixNode:
    """One link of a prefix: its tokens, the node before them, and what is computed of them by adapter."""

    def __init__(self, token_ids: tuple[int, ...], parent: "PrefixNode | None") -> None:
        self.token_ids = token_ids
        self.parent = parent
        self.end: int = (parent.end if parent else 0) + len(token_ids)
        self.states: dict[Adapter, NodeState] = {}
        self.last_use = 0
        # By their first tokens: siblings that share as many as that are one node up to where they part.
        self._children: WeakValueDictionary[tuple[int, ...], PrefixNode] = WeakValueDictionary()

    def chain(self) -> list["PrefixNode"]:
        """Every node from the first to this one, without the root, which has no tokens."""
        nodes: list[PrefixNode] = []
        node = self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    def missing(self, adapter: Adapter) -> list["PrefixNode"]:
        """The nodes of the chain that are not computed under `adapter`; they are its tail."""
        return [node for node in self.chain() if adapter not in node.states]

    def extend(self, token_ids: Sequence[int]) -> "PrefixNode":
        """The node that ends with `token_ids` after this one. The last token is a node of its own: decoding begins by feeding it."""
        rest = tuple(token_ids)
        return self._walk(rest[:-1])._walk(rest[-1:]) if rest else self

    def _walk(self, rest: tuple[int, ...]) -> "PrefixNode":
        node = self
        while rest:
            child = node._child(rest)
            if child is None:
                child = node._children[rest[:_SHORTEST_SHARED]] = PrefixNode(rest, node)
            shared = _shared(child.token_ids, rest)
            if shared < len(child.token_ids):
                child = child._split(shared)
            node, rest = child, rest[shared:]
        return node

    def _child(self, rest: tuple[int, ...]) -> "PrefixNode | None":
        """The child that begins as `rest` does."""
        for length in range(min(len(rest), _SHORTEST_SHARED), 0, -1):
            if (child := self._children.get(rest[:length])) is not None:
                return child
        return None

    def _split(self, length: int) -> "PrefixNode":
        """Give the first `length` tokens to a new node before this one, which keeps the rest. Returns the new one."""
        assert self.parent is not None
        head = PrefixNode(self.token_ids[:length], self.parent)
        head.last_use = self.last_use
        self.parent._children[head.token_ids[:_SHORTEST_SHARED]] = head
        self.parent, self.token_ids = head, self.token_ids[length:]
        head._children[self.token_ids[:_SHORTEST_SHARED]] = self
        for adapter, state in self.states.items():
            head.states[adapter] = state.slice(0, length)
            self.states[adapter] = state.slice(length, length + len(self.token_ids))
        return head

    def descendants(self) -> Iterator["PrefixNode"]:
        """Every live node below this one."""
        waiting = list(self._children.values())
        while waiting:
            node = waiting.pop()
            yield node
            waiting += list(node._children.values())


class PrefixTree:
    """The root of all prefixes, and the budget: `budget` tokens of keys and values at most, kept ones and a batch's together."""

    def __init__(self, budget: int) -> None:
        self.root = PrefixNode((), None)
        self.budget = budget
        self.peak = 0
        self.ledger = TokenLedger()
        self._now = 0

    def begin(self) -> None:
        """Begin a batch: what is used from now on is not evicted before the next."""
        self._now += 1

    def use(self, node: PrefixNode) -> None:
        """Keep what is computed of a chain for as long as this batch lasts."""
        for link in node.chain():
            link.last_use = self._now

    @property
    def free(self) -> int:
        """Tokens that may be allocated without evicting anything."""
        return self.budget - self.ledger.held

    def clear(self) -> None:
        """Discard everything that is computed. Only between batches; what is needed later is computed again."""
        for node in self.root.descendants():
            node.states.clear()

    def make_room(self, tokens: int) -> None:
        """Make space for `tokens` more tokens by evicting the least recently used states, the ends of prefixes first."""
        if tokens > self.free:
            idle = [node for node in self.root.descendants() if node.states and node.last_use < self._now]
            # A prefix is used whenever what continues it is, so this order takes no node before those that continue it.
            for node in sorted(idle, key=lambda node: (node.last_use, -node.end)):
                node.states.clear()
                if tokens <= self.free:
                    break
        assert tokens <= self.free, f"{tokens} tokens do not fit beside {self.ledger.held} of {self.budget}"
        self.peak = max(self.peak, self.ledger.held + tokens)


def _shared(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """The length of the common prefix of two sequences."""
    length = min(len(one), len(other))
    if one[:length] == other[:length]:
        return length
    return next(i for i in range(length) if one[i] != other[i])
