"""Tests of the loaded model before its first step: rows that share a sequence must give the same results as separate rows.

A model that does not keep them apart trains on its neighbors' texts without an error: families differ in their use of
`position_ids`, and layers with a state (Mamba, linear attention, short convolutions) carry it from row to row. So a few short rows are
computed both ways, whatever the family and its attention. Encoders are tested with padded batches, because some read the padding (FNet,
ConvBERT, Nystromformer).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import torch
from transformers import TrainerCallback

from refinery.errors import RecipeError
from train.recipe import TrainRecipe
from train.rows.packing import separated
from train.trainers.shared_prefixes import PrefixForest
from train.trainers.tree_mask import DecoderMask, tree_mask

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

_ROWS, _TOKENS = 4, 8  # short, because a leak is largest where a row begins
# The tolerance for logits against those of separate rows, relative to their size: a multiple of the noise between batches, and of the
# dtype's last place. Rows that leak differ by a third or more; rounding in bfloat16 is about 1%.
_TIMES_NOISE, _TIMES_EPSILON, _LEAST = 4, 4, 1e-3


_Forward = Callable[[Any, torch.Tensor], torch.Tensor]  # (model, ids (rows, tokens)) to (rows, tokens, vocabulary or hidden)


class HasTokens(Protocol):
    """An encoded row of any family."""

    @property
    def input_ids(self) -> list[int]:
        """The row's tokens."""
        ...


class KeepRowsApart(TrainerCallback):
    """Before the first step: gives joined rows a separate mask if the model needs one to keep them apart.

    Raises RecipeError if even that does not help.
    """

    def __init__(self, rows: Sequence[HasTokens], recipe: TrainRecipe) -> None:
        self._rows, self._recipe = _ends(rows), recipe
        self._key = "packing" if recipe.packing else "padding_free"

    def on_train_begin(self, args: Any, state: Any, control: Any, *, model: "PreTrainedModel", **_: Any) -> None:
        """Collective where the model is split over processes."""
        self._check_chunks(_text_config(model), args.per_device_train_batch_size * self._recipe.max_length)
        rows = torch.tensor(self._rows, device=args.device)
        if why := _difference(model, rows, _logits, self._joined, self._recipe.dtype):
            _mask_rows(model)
            if _difference(model, rows, _logits, self._joined, self._recipe.dtype):
                raise self._fault(model.config, why)

    def _joined(self, model: Any, rows: torch.Tensor) -> torch.Tensor:
        """The logits of the rows as a batch of joined ones: (rows, tokens, vocabulary)."""
        batch = separated({"input_ids": rows.reshape(1, -1)}, [rows.shape[1]] * len(rows))
        on_device = {name: value.to(rows.device) if isinstance(value, torch.Tensor) else value for name, value in batch.items()}
        return model(**on_device, use_cache=False).logits.view(*rows.shape, -1)

    def _check_chunks(self, config: "PreTrainedConfig", longest: int) -> None:
        chunk = getattr(config, "attention_chunk_size", None)
        if chunk is not None and longest > chunk:
            raise self._fault(config, f"its attention is cut into chunks of {chunk:,} tokens, in the middle of rows")

    def _fault(self, config: "PreTrainedConfig", why: str) -> RecipeError:
        attention = self._recipe.attn_implementation
        return self._recipe.fault(
            self._key,
            f"{config.model_type} with attn_implementation: {attention} does not keep joined rows apart ({why}). Set it to false.",
        )


class CheckSharedPrefixes(TrainerCallback):
    """Before the first step: raises RecipeError if texts with a shared prefix influence each other under a tree mask."""

    def __init__(self, rows: Sequence[HasTokens], recipe: TrainRecipe) -> None:
        self._rows, self._recipe = _ends(rows), recipe

    def on_train_begin(self, args: Any, state: Any, control: Any, *, model: "PreTrainedModel", **_: Any) -> None:
        """Collective where the model is split over processes."""
        opening = self._rows[0][: len(self._rows[0]) // 2]
        texts = torch.tensor([[*opening, *row] for row in self._rows], device=args.device)
        if why := _difference(model, texts, _logits, self._together, self._recipe.dtype):
            kind, attention = model.config.model_type, self._recipe.attn_implementation
            says = f"{kind} with attn_implementation: {attention} does not keep texts apart that share a prefix ({why})."
            if self._recipe.grpo.share_prefixes:
                raise self._recipe.fault("grpo", f"share_prefixes: {says} Set it to false.")
            raise self._recipe.fault("task", f"{says} Train decomposition on another base, such as a Llama or Qwen3.")

    def _together(self, model: Any, rows: torch.Tensor) -> torch.Tensor:
        forest = PrefixForest.of(rows.tolist())
        mask = forest.mask(_text_config(model), rows.device, next(model.parameters()).dtype)
        ids, positions = (torch.tensor([values], device=rows.device) for values in (forest.token_ids, forest.positions))
        with DecoderMask(model).given(mask):
            logits = model(input_ids=ids, position_ids=positions, use_cache=False).logits[0]
        return logits[torch.tensor(forest.nodes, device=rows.device)]


class CheckPadding(TrainerCallback):
    """Before the first step: raises RecipeError if an encoder reads a batch's padding, and so depends on the other rows."""

    def __init__(self, rows: Sequence[HasTokens], recipe: TrainRecipe, pad_token_id: int) -> None:
        self._rows, self._recipe, self._pad = _ends(rows), recipe, pad_token_id

    def on_train_begin(self, args: Any, state: Any, control: Any, *, model: "PreTrainedModel", **_: Any) -> None:
        """Collective where the model is split over processes."""
        if why := _difference(model, torch.tensor(self._rows, device=args.device), _states, self._padded, self._recipe.dtype):
            raise self._recipe.fault(
                "base", f"{model.config.model_type} reads the padding of a batch ({why}). Use another encoder, such as BERT or ModernBERT."
            )

    def _padded(self, model: Any, rows: torch.Tensor) -> torch.Tensor:
        padded = torch.nn.functional.pad(rows, (0, rows.shape[1]), value=self._pad)
        mask = (torch.arange(padded.shape[1], device=rows.device) < rows.shape[1]).long().expand_as(padded)
        return model(input_ids=padded, attention_mask=mask, output_hidden_states=True).hidden_states[-1][:, : rows.shape[1]]


def _logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    return model(input_ids=ids, use_cache=False).logits


def _states(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """An encoder's last hidden states, because before training the logits of two labels may be almost equal."""
    return model(input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=True).hidden_states[-1]


def _ends(rows: Sequence[HasTokens]) -> list[list[int]]:
    """The last tokens of a few rows, in equal lengths. The first ones are often the same words."""
    chosen = [rows[number % len(rows)].input_ids for number in range(_ROWS)]
    length = min(_TOKENS, *(len(ids) for ids in chosen))
    return [ids[-length:] for ids in chosen]


def _difference(model: "PreTrainedModel", ids: torch.Tensor, apart: _Forward, together: _Forward, dtype: str) -> str | None:
    """The difference between rows of equal lengths computed `together` and `apart`, as text, or None if they agree."""
    with _undisturbed(model):
        expected = apart(model, ids)
        alone = torch.cat([apart(model, row[None]) for row in ids])
        try:
            found = _distance(together(model, ids), expected)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError, RuntimeError) as error:
            return str(error).strip().partition("\n")[0]
    noise = _distance(alone, expected)
    limit = max(_TIMES_NOISE * noise + _TIMES_EPSILON * torch.finfo(getattr(torch, dtype)).eps, _LEAST)
    return None if found <= limit or math.isnan(noise) else f"what it computes differs by {found:.0%}"


@contextmanager
def _undisturbed(model: "PreTrainedModel") -> Iterator[None]:
    """A context without dropout or gradients that leaves the model's state unchanged."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


def _distance(values: torch.Tensor, others: torch.Tensor) -> float:
    """The mean relative distance over tokens, which ignores a shift of all logits of a token."""
    one, other = (each.float() - each.float().mean(-1, keepdim=True) for each in (values, others))
    return float(((one - other).norm(dim=-1) / other.norm(dim=-1)).mean())


def _mask_rows(model: "PreTrainedModel") -> None:
    """Give the model a mask for each joined batch from now on."""
    decoder = DecoderMask(model)

    def build(_: Any, arguments: Any, inputs: dict[str, Any]) -> None:
        decoder.mask = _row_mask(model, inputs) if "document_lengths" in inputs else None

    model.register_forward_pre_hook(build, with_kwargs=True)


def _row_mask(model: Any, batch: dict[str, Any]) -> Any:
    positions = batch["position_ids"][0]
    lengths = torch.tensor(batch["document_lengths"], device=positions.device)
    return tree_mask(lengths.cumsum(0).repeat_interleave(lengths), positions, _text_config(model), next(model.parameters()).dtype)


def _text_config(model: Any) -> "PreTrainedConfig":
    return model.config.get_text_config(decoder=True)
