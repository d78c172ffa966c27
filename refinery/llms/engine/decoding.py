"""Batched decoding over prefixes: contexts that continue the same prefix share one row and its keys and values."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from refinery.llms.base import Usage
from refinery.llms.engine.preallocated_cache import PreallocatedCache
from refinery.llms.engine.prefix_tree import Adapter, PrefixNode
from refinery.llms.engine.tree_forward import KvModel, batches
from refinery.llms.engine.tree_masks import TreeMasks

# A batch ends when at most this fraction of it is still being written. The rest continues in the next batch.
_LIVE_SHARE = 0.5
# Newcomers may join a batch only after this many more steps, which make the copy for joining worthwhile.
_STEPS_BEFORE_JOINING = 16
# This many unused slots of rows are cheaper than another batch.
_IDLE_SLOTS = 16
_BEGUN_AT_ONCE = 256  # texts whose first tokens are chosen together, each from the probabilities of a whole vocabulary


@dataclass(slots=True)
class Branch:
    """One text to write: the prefix it continues, its settings, and the text so far. `node` is a single token, which is fed first unless it
    is computed already."""

    node: PrefixNode
    adapter: Adapter
    max_new_tokens: int
    is_over: Callable[[Sequence[int]], bool]  # called with the written tokens after each new one
    temperature: float
    usage: Usage
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    avoid: tuple[int, ...] = ()  # tokens that are never written
    stopped: bool = False

    @property
    def ended(self) -> bool:
        """Whether the text is finished."""
        return self.stopped or len(self.token_ids) >= self.max_new_tokens

    def write(self, token_id: int, logprob: float) -> None:
        """Add a token, which may finish the text."""
        self.token_ids.append(token_id)
        self.logprobs.append(logprob)
        self.stopped = self.is_over(self.token_ids)

    def take_back(self, count: int) -> None:
        """Remove the last `count` tokens."""
        if count:
            del self.token_ids[-count:], self.logprobs[-count:]
            self.stopped = False

    @property
    def left(self) -> int:
        """Tokens that may still be written."""
        return self.max_new_tokens - len(self.token_ids)

    @property
    def prefix(self) -> PrefixNode:
        """The prefix before the token that is fed first."""
        assert self.node.parent is not None
        return self.node.parent


_Placed = tuple[int, int, Branch]  # a branch with its row, and its place in it


@torch.no_grad()  # not inference_mode: the model may be one in training, and ZeRO-3 keeps what it gathers
def decode(model: KvModel, branches: Sequence[Branch], *, newcomers: Callable[[], int]) -> None:
    """Decode every branch to its end, or stop early so that others can join the unfinished ones: when only a few branches are left, or
    when `newcomers` are waiting for the next batch.

    Everything before each branch's last token is already computed. Where that token is too, what follows it takes no pass.
    """
    _begin(model, [branch for branch in branches if branch.adapter in branch.node.states])

    def fits(rows: list[list[Branch]]) -> bool:
        width = max(map(len, rows))
        prefixes = [row[0].prefix.end for row in rows]
        left = [branch.left for row in rows for branch in row]
        slots = len(rows) * width
        size = model.static.tokens(rows=len(rows), width=width, prefix=max(prefixes), steps=max(left))
        padding = len(rows) * max(prefixes) - sum(prefixes)
        return size <= model.tree.batch_room and padding <= model.padding and slots - len(left) <= max(len(left) // 2, _IDLE_SLOTS)

    rows: dict[tuple[int, Adapter], list[Branch]] = {}
    for branch in (branch for branch in branches if not branch.ended):
        rows.setdefault((id(branch.prefix), branch.adapter), []).append(branch)
    order = sorted(rows.values(), key=lambda row: (len(row), row[0].prefix.end))
    for batch in batches(order, fits):
        _DecodeBatch(model, batch).run(newcomers)


@dataclass(slots=True)
class _Taken:
    """The tokens and log-probabilities of a step (2, rows, width), on their way to the host."""

    numbers: torch.Tensor
    arrived: "torch.cuda.Event | None"

    @classmethod
    def of(cls, tokens: torch.Tensor, logprobs: torch.Tensor) -> "_Taken":
        # float32, the widest type on Apple's GPUs, holds both: no vocabulary has 2^24 tokens.
        numbers = torch.stack([tokens.float(), logprobs]).to("cpu", non_blocking=tokens.is_cuda)
        arrived = torch.cuda.Event() if tokens.is_cuda else None
        if arrived is not None:
            arrived.record()
        return cls(numbers, arrived)

    def read(self) -> list[list[list[float]]]:
        """Tokens, and log-probabilities, by row. The only wait for the device in a step."""
        if self.arrived is not None:
            self.arrived.synchronize()
        return self.numbers.tolist()


class _DecodeBatch:
    """Rows of branches, each row continuing one prefix. Each step feeds one token of every branch."""

    def __init__(self, model: KvModel, rows: Sequence[Sequence[Branch]]) -> None:
        self.model, self.rows = model, rows
        self.branches = [(r, b, branch) for r, row in enumerate(rows) for b, branch in enumerate(row)]
        self.height, self.width = len(rows), max(map(len, rows))
        self.prefix = max(row[0].prefix.end for row in rows)
        self.steps = max(branch.left for _, _, branch in self.branches)
        self.written: list[list[int]] = [[] for _ in self.branches]
        self.kept = False  # whether the branches' prefixes hold all tokens written so far
        self.hidden: list[torch.Tensor] = []  # of each step (rows, width, hidden)
        self.read = 0  # steps whose tokens the host has read
        # While the host reads one step's tokens, a GPU already computes the next one. What is sampled depends on which branches have ended.
        self.ahead = int(model.device.type == "cuda" and not any(branch.temperature > 0 for _, _, branch in self.branches))

    def run(self, newcomers: Callable[[], int]) -> None:
        """Decode until most branches have ended or others wait to join them, and store the computed states of all branches.

        If that fails, written tokens that were not stored in a branch's prefix are taken back.
        """
        try:
            self._run(newcomers)
        finally:
            for (_, _, branch), written in zip(self.branches, self.written, strict=True):
                branch.take_back(0 if self.kept else len(written))

    def _run(self, newcomers: Callable[[], int]) -> None:
        model = self.model
        shape = model.static.shape(rows=self.height, width=self.width, prefix=self.prefix, steps=self.steps)
        if shape:
            self.height, self.width, self.prefix = shape.rows, shape.width, shape.keys - shape.width * self.steps
        room = self.width * self.steps
        model.tree.make_room(sum(branch.left for _, _, branch in self.branches), batch=self.height * (self.prefix + room))
        adapters = [row[0].adapter for row in self.rows]
        chains = [(row[0].prefix, row[0].adapter) for row in self.rows]
        cache, held = model.gather(chains, self.prefix, room=room, shape=shape)
        visible = self._visible(torch.from_numpy(held[:, : self.prefix]).to(model.device))
        masks = TreeMasks(model.config, visible, prefix=self.prefix, dtype=model.base.dtype, whole=shape is not None)
        ids, positions = (torch.from_numpy(numbers).to(model.device) for numbers in self._first())
        waiting: deque[_Taken] = deque()
        for step in range(self.steps):
            inputs = ids, cache, masks.at(step), positions + step
            if shape:
                hidden, logits = model.static_step(*inputs, shape=shape, first=self.prefix + self.width * step)
            else:
                hidden, logits = model.forward(*inputs, adapters)
            self.hidden.append(hidden)
            ids, logprobs = _choose(model, logits.float(), self.branches)
            waiting.append(_Taken.of(ids, logprobs))
            if len(waiting) > self.ahead and self._ends(waiting.popleft(), newcomers):
                break
        else:
            while waiting:
                self._ends(waiting.popleft(), newcomers)
        self._keep(cache)

    def _first(self) -> tuple["np.ndarray", "np.ndarray"]:
        """The first tokens to feed (rows, width), and their positions."""
        ids, positions = np.zeros((2, self.height, self.width), dtype=np.int64)
        for r, row in enumerate(self.rows):
            positions[r] = row[0].prefix.end
        for r, b, branch in self.branches:
            ids[r, b] = branch.node.token_ids[0]
        return ids, positions

    def _visible(self, held: torch.Tensor) -> torch.Tensor:
        """Which keys each branch sees, (rows, 1, width, prefix + width x steps): its row's prefix, and its own tokens."""
        own = torch.eye(self.width, dtype=torch.bool, device=held.device).repeat(1, self.steps)
        return torch.cat([held[:, None].expand(-1, self.width, -1), own.expand(self.height, -1, -1)], dim=2)[:, None]

    def _ends(self, taken: "_Taken", newcomers: Callable[[], int]) -> bool:
        """Write a step's tokens to the branches that have not ended; returns whether the batch is to end after them."""
        tokens, logprobs = taken.read()
        for (r, b, branch), written in zip(self.branches, self.written, strict=True):
            if not branch.ended:
                written.append(int(tokens[r][b]))
                branch.write(written[-1], logprobs[r][b])
        self.read += 1
        live = sum(not branch.ended for _, _, branch in self.branches)
        return live <= _LIVE_SHARE * len(self.branches) or (self.read % _STEPS_BEFORE_JOINING == 0 and bool(newcomers()))

    def _keep(self, cache: PreallocatedCache) -> None:
        """Add the computed tokens of the branches, which are all but their last ones, to their prefixes."""
        ends = [branch.node.extend(written) for (_, _, branch), written in zip(self.branches, self.written, strict=True)]
        new: dict[tuple[int, Adapter], tuple[PrefixNode, Adapter]] = {}
        tokens, taken = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for (r, b, branch), end in zip(self.branches, ends, strict=True):
            start = branch.prefix.end
            for node in end.chain():
                if start < node.end < end.end and branch.adapter not in node.states and (id(node), branch.adapter) not in new:
                    new[id(node), branch.adapter] = (node, branch.adapter)
                    steps = np.arange(node.end - len(node.token_ids) - start, node.end - start)
                    tokens.append(r * (self.prefix + self.width * self.steps) + self.prefix + self.width * steps + b)
                    taken.append((steps * self.height + r) * self.width + b)
        hidden = torch.stack(self.hidden).flatten(0, 2)  # (steps x rows x width, hidden)
        self.model.keep([*new.values()], cache, np.concatenate(tokens), hidden, np.concatenate(taken))
        self.kept = True
        for (_, _, branch), written, end in zip(self.branches, self.written, ends, strict=True):
            begun = len(branch.token_ids) == len(written)  # its first token was not written by the model
            for account in (branch.usage, self.model.counters):
                account.prefill_tokens += begun
                account.decode_tokens += len(written)
            branch.node = end
            self.model.tree.use(end)


def _begin(model: KvModel, branches: Sequence[Branch]) -> None:
    """Write a token of each branch whose own token is computed as well, from its stored state."""
    for start in range(0, len(branches), _BEGUN_AT_ONCE):
        part = branches[start : start + _BEGUN_AT_ONCE]
        slots = np.array([branch.node.states[branch.adapter].slots[-1] for branch in part])
        logits = model.next_logits(slots, [branch.adapter for branch in part])
        taken = _Taken.of(*_choose(model, logits[:, None], [(row, 0, branch) for row, branch in enumerate(part)]))
        for branch, (token,), (logprob,) in zip(part, *taken.read(), strict=True):
            branch.write(int(token), logprob)
            branch.node = branch.node.extend(branch.token_ids[-1:])
            model.tree.use(branch.node)
            for account in (branch.usage, model.counters):
                account.decode_tokens += 1


def _choose(model: KvModel, logits: torch.Tensor, branches: Sequence[_Placed]) -> tuple[torch.Tensor, torch.Tensor]:
    """A token for every branch, which is the next input, and its log-probability (rows, width). `logits` is (rows, width, vocab)."""
    highest, tokens = logits.max(-1)
    # Equals torch.logsumexp, with one pass less over the vocabulary. Of all tokens, also those that a branch avoids.
    normalizers = highest + (logits - highest[..., None]).exp_().sum(-1).log()
    for r, b, branch in branches:
        if branch.avoid:
            logits[r, b, [*branch.avoid]] = float("-inf")
            tokens[r, b] = logits[r, b].argmax()
    _sample(model, logits, tokens, [placed for placed in branches if placed[2].temperature > 0 and not placed[2].ended])
    return tokens, logits.gather(-1, tokens[..., None])[..., 0] - normalizers


def _sample(model: KvModel, logits: torch.Tensor, tokens: torch.Tensor, drawn: Sequence[_Placed]) -> None:
    """Sample `tokens` (rows, width) in place for branches that have a temperature. `logits` is (rows, width, vocab)."""
    numbered = [(r, b, branch.temperature, random.random()) for r, b, branch in drawn if (random := branch.usage.random) is not None]
    if numbered:
        rows, slots, *columns = zip(*numbered, strict=True)
        temperatures, numbers = (torch.tensor(column, dtype=torch.float64, device=logits.device)[:, None] for column in columns)
        weights = torch.softmax(logits[rows, slots] / temperatures.float(), dim=-1)
        shares = weights.double().cumsum(-1)  # (branches, vocab)
        found = torch.searchsorted(shares, numbers * shares[:, -1:], right=True)
        tokens[rows, slots] = found[:, 0].clamp(max=logits.shape[-1] - 1)
    for r, b, branch in drawn:
        if branch.usage.random is None:
            weights = torch.softmax(logits[r, b] / branch.temperature, dim=-1)
            tokens[r, b] = torch.multinomial(weights, 1, generator=model.generator)[0]
