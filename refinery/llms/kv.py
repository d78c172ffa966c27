"""Prefixes with their keys and values, and the two batched operations on them: computing prefixes and decoding from them.

A prefix is a chain of nodes, each holding the keys and values of its own tokens only. A batch gathers each row's chain into one
left-padded cache, so a token enters the model once however many rows continue it. Knows nothing of requests or scheduling.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import torch
from transformers import Cache

from refinery.llms.base import Counters, Usage
from refinery.llms.roomy_cache import roomy_cache

Adapter = str | None
# A decoding batch is packed again once no more than this share of its rows is unfinished.
_LIVE_SHARE = 0.7


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node's own tokens as computed under one adapter: per layer keys and values (heads, tokens, dim), and hidden (tokens, hidden)."""

    layers: list[tuple[torch.Tensor, torch.Tensor]]
    hidden: torch.Tensor


class Node:
    """One link of a prefix. Extending it by the same tokens again gives the same node, so siblings share their parent's work."""

    def __init__(self, token_ids: Sequence[int], parent: "Node | None", usage: Usage) -> None:
        self.token_ids = tuple(token_ids)
        self.parent = parent
        self.usage = usage
        self.end: int = (parent.end if parent else 0) + len(self.token_ids)
        self.states: dict[Adapter, NodeState] = {}
        self._children: WeakValueDictionary[tuple[int, ...], Node] = WeakValueDictionary()

    def child(self, token_ids: Sequence[int]) -> "Node":
        """The node that continues this one with `token_ids`."""
        key = tuple(token_ids)
        found = self._children.get(key)
        if found is None:
            found = self._children[key] = Node(key, self, self.usage)
        return found

    def chain(self) -> list["Node"]:
        """Every node from the root to this one."""
        nodes: list[Node] = []
        node: Node | None = self
        while node is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    def missing(self, adapter: Adapter) -> list["Node"]:
        """The nodes of the chain that are not computed under `adapter`; they are its tail."""
        return [node for node in self.chain() if adapter not in node.states]


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a batch: the node whose chain is its prefix (None for an empty one), and the adapter it runs under."""

    node: Node | None
    adapter: Adapter

    @property
    def prefix_length(self) -> int:
        """Tokens in the prefix."""
        return self.node.end if self.node else 0

    def states(self) -> list[NodeState]:
        """What is computed of the prefix, root first."""
        return [node.states[self.adapter] for node in self.node.chain()] if self.node else []


@dataclass(frozen=True, slots=True)
class Decoded:
    """What one row wrote, token by token, whether it ended at a stop token, and the node that now ends its prefix."""

    token_ids: list[int]
    logprobs: list[float]
    stopped: bool
    node: Node


class KvModel:
    """A causal model with batched prefix computation and decoding over `Node`s.

    `adapters` names the PEFT adapters that rows may use; None is the bare model. `kv_token_budget` bounds rows x length of a batch.
    """

    def __init__(self, model: Any, *, adapters: Sequence[str] = (), kv_token_budget: int = 65_536, seed: int = 0) -> None:
        self.model = model.eval()
        self.adapters = tuple(adapters)
        self.kv_token_budget = kv_token_budget
        self.counters = Counters()
        self.device = next(model.parameters()).device
        self._base = model.get_base_model() if self.adapters else model
        self._hidden: torch.Tensor | None = None
        self._base.get_decoder().register_forward_hook(self._keep_hidden)
        self.generator = torch.Generator(device=self.device).manual_seed(seed)

    def _keep_hidden(self, module: Any, arguments: Any, output: Any) -> None:
        self._hidden = output.last_hidden_state

    @torch.inference_mode()
    def compute(self, wanted: Sequence[tuple[Node, Adapter]]) -> None:
        """Compute every node that the wanted chains miss, each once, parents first."""
        while runs := _next_runs(wanted):
            runs.sort(key=lambda run: run[0][0].end)
            lengths = [run[0][-1].end for run in runs]
            for chunk in self._chunks(lengths):
                self._compute_runs(runs[chunk])

    def _compute_runs(self, runs: Sequence[tuple[list[Node], Adapter]]) -> None:
        """One forward pass; each run's new tokens stand right-padded after its left-padded prefix."""
        rows = [Row(nodes[0].parent, adapter) for nodes, adapter in runs]
        new_ids = [[token for node in nodes for token in node.token_ids] for nodes, _ in runs]
        width, prefix = max(map(len, new_ids)), max(row.prefix_length for row in rows)
        cache, mask = self.gather(rows, prefix, extra=width)
        ids = torch.zeros((len(runs), width), dtype=torch.long, device=self.device)
        for i, tokens in enumerate(new_ids):
            ids[i, : len(tokens)] = torch.tensor(tokens, device=self.device)
            mask[i, prefix : prefix + len(tokens)] = 1
        hidden = self.forward(ids, cache, mask, rows)  # (rows, width, hidden)
        for i, (nodes, adapter) in enumerate(runs):
            start = 0
            for node in nodes:
                stop = start + len(node.token_ids)
                node.states[adapter] = _slice_state(cache, hidden[i, start:stop], i, prefix + start, stop - start)
                node.usage.prefill_tokens += len(node.token_ids)
                start = stop
            self.counters.prefill_tokens += len(new_ids[i])

    @torch.inference_mode()
    def next_logprobs(self, node: Node, adapter: Adapter) -> torch.Tensor:
        """Log-probabilities (vocab,) of what follows a computed node."""
        return self.log_softmax(node.states[adapter].hidden[-1])

    @torch.inference_mode()
    def token_logprobs(self, node: Node, adapter: Adapter) -> list[float]:
        """Log-probability of each of a computed node's own tokens; the node must have a parent."""
        assert node.parent is not None
        hidden = torch.cat([node.parent.states[adapter].hidden[-1:], node.states[adapter].hidden[:-1]])
        targets = torch.tensor(node.token_ids, device=self.device)
        return self.log_softmax(hidden).gather(-1, targets[:, None])[:, 0].tolist()

    @torch.inference_mode()
    def decode(
        self,
        rows: Sequence[Row],
        *,
        max_new_tokens: Sequence[int],
        stop_ids: Sequence[frozenset[int]],
        temperatures: Sequence[float],
    ) -> list[Decoded]:
        """Decode every row from its computed node, in as many batches as the budget asks for."""
        results: list[Decoded | None] = [None] * len(rows)
        order = sorted(range(len(rows)), key=lambda i: rows[i].prefix_length)
        for chunk in self._chunks([rows[i].prefix_length + max_new_tokens[i] for i in order]):
            picked = order[chunk]
            batch = _DecodeBatch(
                self,
                [rows[i] for i in picked],
                [max_new_tokens[i] for i in picked],
                [stop_ids[i] for i in picked],
                [temperatures[i] for i in picked],
            )
            for i, decoded in zip(picked, batch.run(), strict=True):
                results[i] = decoded
        return [decoded for decoded in results if decoded is not None]

    def _chunks(self, lengths: Sequence[int]) -> Iterator[slice]:
        """Slices of an ascending list of lengths whose padded size fits the budget (one row always fits)."""
        start = 0
        for i in range(len(lengths)):
            if i > start and (i - start + 1) * max(lengths[start : i + 1]) > self.kv_token_budget:
                yield slice(start, i)
                start = i
        if start < len(lengths):
            yield slice(start, len(lengths))

    def gather(self, rows: Sequence[Row], prefix: int, *, extra: int, room: int = 0) -> tuple[Cache, torch.Tensor]:
        """A cache with every row's chain left-padded to `prefix`, and its attention mask (rows, prefix + extra), zero past the prefix.

        `room` is how many tokens the cache can take without being copied.
        """
        cache = roomy_cache(self._base.config.num_hidden_layers, room or extra)
        mask = torch.zeros((len(rows), prefix + extra), dtype=torch.long, device=self.device)
        for i, row in enumerate(rows):
            mask[i, prefix - row.prefix_length : prefix] = 1
        if prefix:
            chains = [row.states() for row in rows]
            for layer in range(self._base.config.num_hidden_layers):
                keys, values = ([[state.layers[layer][kind] for state in chain] for chain in chains] for kind in (0, 1))
                cache.update(self._pad(keys, prefix), self._pad(values, prefix), layer)
        return cache, mask

    def _pad(self, chains: list[list[torch.Tensor]], prefix: int) -> torch.Tensor:
        """Put each row's tensors (heads, tokens, dim) one after the other, left-padded to (rows, heads, prefix, dim)."""
        example = next(tensor for chain in chains for tensor in chain)
        padded = example.new_zeros((len(chains), example.shape[0], prefix, example.shape[2]))
        for i, chain in enumerate(chains):
            start = prefix - sum(tensor.shape[1] for tensor in chain)
            for tensor in chain:
                padded[i, :, start : start + tensor.shape[1]] = tensor
                start += tensor.shape[1]
        return padded

    def forward(self, ids: torch.Tensor, cache: Cache, mask: torch.Tensor, rows: Sequence[Row]) -> torch.Tensor:
        """Last hidden states (rows, width, hidden); the head is applied by the caller where it needs it."""
        positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        names = {"adapter_names": [row.adapter or "__base__" for row in rows]} if self.adapters else {}
        self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
            **names,
        )
        self.counters.forwards += 1
        self.counters.batch_sizes.append(len(rows))
        assert self._hidden is not None
        return self._hidden

    def log_softmax(self, hidden: torch.Tensor) -> torch.Tensor:
        """Log-probabilities (..., vocab) of hidden states (..., hidden)."""
        return torch.log_softmax(self._base.get_output_embeddings()(hidden).float(), dim=-1)


class _DecodeBatch:
    """Rows decoded together. Rows that have ended leave when they are many: letting one out copies the cache of all others."""

    def __init__(
        self,
        model: KvModel,
        rows: list[Row],
        max_new_tokens: list[int],
        stop_ids: list[frozenset[int]],
        temperatures: list[float],
    ) -> None:
        self.model, self.rows, self.limits, self.stop_ids, self.temperatures = (
            model,
            rows,
            max_new_tokens,
            stop_ids,
            temperatures,
        )
        self.prefix = max(row.prefix_length for row in rows)
        self.ids: list[list[int]] = [[] for _ in rows]
        self.logprobs: list[list[float]] = [[] for _ in rows]
        self.hidden: list[list[torch.Tensor]] = [[] for _ in rows]
        self.done: dict[int, Decoded] = {}

    def run(self) -> list[Decoded]:
        """Decode until every row has ended."""
        cache, mask = self.model.gather(self.rows, self.prefix, extra=0, room=max(self.limits))
        batch = list(range(len(self.rows)))
        last_hidden = torch.stack([row.states()[-1].hidden[-1] for row in self.rows])  # (rows, hidden)
        while True:
            for position in self._pick(batch, self.model.log_softmax(last_hidden)):
                self._finish(batch[position], position, cache)
            live = [position for position, i in enumerate(batch) if i not in self.done]
            if not live:
                return [self.done[i] for i in range(len(self.rows))]
            if len(live) <= _LIVE_SHARE * len(batch):
                cache.batch_select_indices(torch.tensor(live, device=self.model.device))
                mask, batch = mask[live], [batch[position] for position in live]
            mask = torch.cat([mask, mask.new_ones((len(batch), 1))], dim=1)
            ids = torch.tensor([[self.ids[i][-1]] for i in batch], device=self.model.device)
            last_hidden = self.model.forward(ids, cache, mask, [self.rows[i] for i in batch])[:, -1]
            for position, i in enumerate(batch):
                if i not in self.done:
                    self.hidden[i].append(last_hidden[position])

    def _pick(self, batch: list[int], logprobs: torch.Tensor) -> list[int]:
        """Take one token for every row that has not ended; returns the positions whose row ends with it."""
        tokens = self._choose_tokens(batch, logprobs)
        taken = logprobs.gather(-1, tokens[:, None])[:, 0].tolist()
        ended: list[int] = []
        for position, (i, token) in enumerate(zip(batch, tokens.tolist(), strict=True)):
            if i in self.done:
                continue
            self.ids[i].append(token)
            self.logprobs[i].append(taken[position])
            if token in self.stop_ids[i] or len(self.ids[i]) >= self.limits[i]:
                ended.append(position)
        return ended

    def _choose_tokens(self, batch: list[int], logprobs: torch.Tensor) -> torch.Tensor:
        tokens = logprobs.argmax(-1)
        for position, i in enumerate(batch):
            if self.temperatures[i] > 0 and i not in self.done:
                weights = torch.softmax(logprobs[position] / self.temperatures[i], dim=-1)
                tokens[position] = torch.multinomial(weights, 1, generator=self.model.generator)
        return tokens

    def _finish(self, i: int, position: int, cache: Cache) -> None:
        """Close a row: what it has fed (all but its last token) is computed already and becomes a node of its prefix."""
        row, fed = self.rows[i], self.ids[i][:-1]
        assert row.node is not None
        node = row.node
        if fed:
            node = node.child(fed)
            node.states[row.adapter] = _slice_state(cache, torch.stack(self.hidden[i]), position, self.prefix, len(fed))
        node.usage.decode_tokens += len(self.ids[i])
        self.model.counters.decode_tokens += len(self.ids[i])
        stopped = self.ids[i][-1] in self.stop_ids[i]
        self.done[i] = Decoded(self.ids[i], self.logprobs[i], stopped, node.child(self.ids[i][-1:]))


def _next_runs(wanted: Sequence[tuple[Node, Adapter]]) -> list[tuple[list[Node], Adapter]]:
    """For every wanted chain its first uncomputed stretch, up to where chains part; chains that share a stretch share the run."""
    paths = [(node.missing(adapter), adapter) for node, adapter in wanted]
    uses: dict[tuple[int, Adapter], int] = {}
    for path, adapter in paths:
        for node in path:
            uses[id(node), adapter] = uses.get((id(node), adapter), 0) + 1
    runs: dict[tuple[int, Adapter], tuple[list[Node], Adapter]] = {}
    for path, adapter in paths:
        if path and (id(path[0]), adapter) not in runs:
            count = uses[id(path[0]), adapter]
            stretch = [path[0]]
            for node in path[1:]:
                if uses[id(node), adapter] != count:
                    break
                stretch.append(node)
            runs[id(path[0]), adapter] = (stretch, adapter)
    return list(runs.values())


def _slice_state(cache: Cache, hidden: torch.Tensor, row: int, start: int, length: int) -> NodeState:
    """Copy `length` tokens of one row out of a batch's cache, so that the batch can be freed."""
    span = slice(start, start + length)
    return NodeState(
        [(layer.keys[row, :, span].clone(), layer.values[row, :, span].clone()) for layer in cache.layers],
        hidden.clone(),
    )
