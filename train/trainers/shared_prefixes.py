"""The log-probabilities of rows that begin alike, with what they share computed once: in one sequence, each token sees its own prefix.

The gradients are those of separate rows, because a shared token's keys, values and states are the same in each of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from refinery.llms.weights.decoder_support import SLIDING, layer_kinds

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


@dataclass(frozen=True, slots=True)
class PrefixForest:
    """The distinct prefixes of texts, each with its last token: `parents` (-1 where a text begins) and `positions` (from 0) are of each.

    They are in the order of a walk through the trees, so that what continues a prefix stands directly after it, up to `ends`. `nodes[i]`
    are the prefixes of text i, in order.
    """

    token_ids: list[int]
    parents: list[int]
    positions: list[int]
    ends: list[int]
    nodes: list[list[int]]

    @classmethod
    def of(cls, texts: Sequence[Sequence[int]]) -> "PrefixForest":
        """The forest of the texts."""
        forest = cls([], [], [], [], [[] for _ in texts])
        before: list[int] = []
        for number in sorted(range(len(texts)), key=lambda i: tuple(texts[i])):  # in this order, equal beginnings are neighbors
            before = forest.nodes[number] = forest._added(texts[number], before)
        for node in range(len(forest.parents) - 1, -1, -1):
            if (parent := forest.parents[node]) >= 0:
                forest.ends[parent] = max(forest.ends[parent], forest.ends[node])
        return forest

    def _added(self, text: Sequence[int], before: Sequence[int]) -> list[int]:
        """The nodes of a text, of which the first are those of `before` as far as the two are equal."""
        shared = next((i for i, (node, token) in enumerate(zip(before, text, strict=False)) if self.token_ids[node] != token), None)
        nodes = [*before[: min(len(before), len(text)) if shared is None else shared]]
        for token in text[len(nodes) :]:
            self.parents.append(nodes[-1] if nodes else -1)
            self.positions.append(len(nodes))
            nodes.append(len(self.token_ids))
            self.token_ids.append(token)
            self.ends.append(len(self.token_ids))
        return nodes

    def mask(self, config: "PreTrainedConfig", device: torch.device, dtype: torch.dtype) -> Any:
        """Which tokens each one sees, (1, 1, tokens, tokens), in the form that the model takes: by kind of layer where it has several."""
        numbers, ends = torch.arange(len(self.token_ids), device=device), torch.tensor(self.ends, device=device)
        seen = (numbers[None, :] <= numbers[:, None]) & (numbers[:, None] < ends[None, :])
        kinds, masks = layer_kinds(config), {}
        for kind in kinds:
            masks[kind] = seen if kind != SLIDING else seen & self._near(config, device)
            if config._attn_implementation == "eager":
                masks[kind] = torch.zeros_like(seen, dtype=dtype).masked_fill(~masks[kind], torch.finfo(dtype).min)
            masks[kind] = masks[kind][None, None]
        return masks if getattr(config, "layer_types", None) else masks[kinds[0]]

    def _near(self, config: "PreTrainedConfig", device: torch.device) -> torch.Tensor:
        positions = torch.tensor(self.positions, device=device)
        window: int = config.sliding_window  # pyright: ignore[reportAttributeAccessIssue]
        return positions[:, None] - positions[None, :] < window


class SharedPrefixes:
    """Computes rows over shared prefixes with a model that has TRL's fused head. `text_break` is the id between texts of a row."""

    def __init__(self, model: "PreTrainedModel", text_break: int) -> None:
        self._config = model.config.get_text_config(decoder=True)
        self._text_break = text_break
        self._parents: torch.Tensor | None = None  # (targets,), while a forward pass runs
        model.get_decoder().register_forward_hook(self._select)

    def log_probs(
        self, model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, logits_to_keep: int
    ) -> tuple[torch.Tensor, torch.Tensor, int]:
        """(log-probabilities, entropies, tokens computed) of the last `logits_to_keep` columns, (rows, logits_to_keep); 0 for padding.

        `input_ids` and `attention_mask` are (rows, tokens).
        """
        rows = [ids[mask.bool()].tolist() for ids, mask in zip(input_ids, attention_mask, strict=True)]
        forest, nodes = self._forest(rows)
        targets = sorted({node for row in nodes for node in row if node >= 0 and forest.parents[node] >= 0})
        found = self._computed(model, forest, targets, input_ids.device)
        place = torch.full((len(forest.token_ids) + 1,), len(targets), dtype=torch.long)  # the last is no target
        place[torch.tensor(targets)] = torch.arange(len(targets))
        columns = torch.full(input_ids.shape, len(targets), dtype=torch.long)
        for row, mask in enumerate(attention_mask.bool().cpu()):
            columns[row, mask] = place[torch.tensor(nodes[row])]
        columns = columns[:, -logits_to_keep:].to(input_ids.device)
        log_probs, entropies = (torch.cat([values, values.new_zeros(1)])[columns] for values in found)
        return log_probs, entropies, len(forest.token_ids)

    def _forest(self, rows: Sequence[list[int]]) -> tuple[PrefixForest, list[list[int]]]:
        """The forest of all texts, and the node of each token of a row; -1 for a break."""
        texts = [_split(row, self._text_break) for row in rows]
        forest = PrefixForest.of([text for row in texts for text in row])
        given = iter(forest.nodes)
        nodes: list[list[int]] = []
        for row in texts:
            first, *others = [next(given) for _ in row]
            nodes.append(first + [node for text in others for node in (-1, *text)])
        return forest, nodes

    def _computed(
        self, model: Any, forest: PrefixForest, targets: Sequence[int], device: torch.device
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(log-probabilities, entropies) of the target nodes after their parents, (targets,)."""

        def row(values: Sequence[int]) -> torch.Tensor:
            return torch.tensor(values, device=device)[None]

        self._parents = row([forest.parents[node] for node in targets])[0]
        try:
            output = model(
                input_ids=row(forest.token_ids),
                attention_mask=forest.mask(self._config, device, next(model.parameters()).dtype),
                position_ids=row(forest.positions),
                shift_labels=row([forest.token_ids[node] for node in targets]),
                fused_lm_head=True,
            )
        finally:
            self._parents = None
        return output.log_probs[0], output.entropy[0]

    def _select(self, module: Any, arguments: Any, output: Any) -> Any:
        if self._parents is not None:
            output.last_hidden_state = output.last_hidden_state[:, self._parents]  # (1, targets, hidden)
        return output


def _split(row: Sequence[int], text_break: int) -> list[list[int]]:
    texts: list[list[int]] = [[]]
    for token in row:
        if token == text_break:
            texts.append([])
        else:
            texts[-1].append(token)
    return texts
