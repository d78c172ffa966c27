"""The rows of a model's embeddings: growing them for control tokens, and whether an adapter's rows fit them."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from refinery.contract.control_tokens import read_manifest
from refinery.errors import CheckpointError

if TYPE_CHECKING:
    import torch
    from peft import PeftModel
    from transformers import PreTrainedModel


def embeddings_of(model: "PreTrainedModel | PeftModel") -> list["torch.Tensor"]:
    """Weights (vocabulary, hidden) of the input and the output embedding; one where they are tied or the model has no head of tokens."""
    weights = [
        cast("torch.Tensor", layer.weight) for layer in (model.get_input_embeddings(), model.get_output_embeddings()) if layer is not None
    ]
    return weights[:1] if weights[0] is weights[-1] else weights


def embedding_rows(model: "PreTrainedModel | PeftModel") -> int:
    """The number of embedding rows, including those that only round it up."""
    return embeddings_of(model)[0].shape[0]


def extend_vocabulary(model: "PreTrainedModel | PeftModel", tokens: int) -> None:
    """Grow the embeddings to hold `tokens` rows, rounded up to a multiple of 64; never shrinks.

    New rows are the mean of the old ones, here and whenever the same base is extended again, so the rows that only round up need not be
    trained or saved.
    """
    rows = embedding_rows(model)
    if tokens <= rows:
        return
    model.resize_token_embeddings(-(-tokens // 64) * 64, mean_resizing=False)
    for weight in embeddings_of(model):
        weight.data[rows:] = weight.data[:rows].mean(dim=0)


def check_adapter_fits(path: str, folder: str, config: dict[str, Any], *, base: str, rows: int) -> None:
    """Raise CheckpointError unless a base of so many embedding rows is one that the adapter in `folder` was trained on.

    `rows` are counted before anything is added. For an adapter from elsewhere, which has no manifest, the trained rows must exist.
    """
    manifest = read_manifest(folder)
    wanted = manifest.get("base_rows")
    extended = -(-manifest.get("vocabulary_size", 0) // 64) * 64
    if wanted is not None and rows not in (wanted, max(wanted, extended)):
        raise CheckpointError(
            f"{path}: was trained on a base with {wanted:,} token embeddings, but {base} has {rows:,}. "
            f"Load it on {config['base_model_name_or_path']}."
        )
    if not (Path(folder) / "tokenizer_config.json").exists() and (highest := _highest_row(config)) >= rows:
        raise CheckpointError(
            f"{path}: trains the row of token {highest:,}, but {base} has {rows:,} and the adapter's folder has no tokenizer. "
            "Put the tokenizer that it was trained with into this folder."
        )


def check_bundle(configs: Mapping[str, dict[str, Any]]) -> None:
    """Raise CheckpointError unless adapters (their configurations by path) can be mixed in one batch on one base."""
    with_rows = {path for path, config in configs.items() if config.get("trainable_token_indices")}
    if with_rows and (others := configs.keys() - with_rows):
        raise CheckpointError(
            f"{min(with_rows)}: trains token rows and {min(others)} does not, so PEFT cannot mix them in one batch. "
            "Merge the first with `refinery merge` and load it as a separate model."
        )
    for path, config in configs.items():
        reasons = {"is a DoRA adapter": config.get("use_dora"), "trains the experts of a mixture": config.get("target_parameters")}
        if reason := next((reason for reason, applies in reasons.items() if applies), None):
            raise CheckpointError(
                f"{path}: {reason}, which PEFT does not mix with others in one batch. "
                "Merge it with `refinery merge` and load it as a separate model."
            )


def _highest_row(config: dict[str, Any]) -> int:
    indices = config.get("trainable_token_indices") or []
    return max((row for rows in (indices.values() if isinstance(indices, dict) else [indices]) for row in rows), default=-1)
