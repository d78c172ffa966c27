"""The model to train: control tokens added and initialised, adapter wrapped around it, and how it is saved.

What the installed stack gets wrong and this file works around is said where it happens.
"""

from pathlib import Path
from typing import Any

from refinery.control_tokens import RQ_RAG, ControlToken, write_manifest
from refinery.llms.checkpoint import extend_vocabulary, load_base
from refinery.segments import encode_text
from train.recipe import TrainRecipe


def control_tokens_of(recipe: TrainRecipe) -> tuple[ControlToken, ...]:
    """The control tokens that the recipe's task needs."""
    return RQ_RAG if recipe.task == "refinement" else ()


def build_model(recipe: TrainRecipe) -> tuple[Any, Any]:
    """(model, tokenizer) ready for the trainer: for `lora` a PEFT model that trains the adapter and the control tokens' rows."""
    model, tokenizer = load_base(recipe.base, dtype=recipe.dtype)
    if tokenizer.pad_token is None:
        tokenizer.add_special_tokens({"pad_token": "<pad>"})
    new_rows = add_control_tokens(model, tokenizer, control_tokens_of(recipe))
    model.config.use_cache = False
    model.set_attn_implementation(recipe.attn_implementation)
    if recipe.strategy == "lora":
        model = _with_adapter(model, recipe, new_rows)
    return model, tokenizer


def add_control_tokens(model: Any, tokenizer: Any, tokens: tuple[ControlToken, ...]) -> list[int]:
    """Add the tokens, resize the embeddings, and start each new row at the mean of its description's rows. Returns the new row ids."""
    rows = model.get_input_embeddings().weight.shape[0]
    tokenizer.add_special_tokens({"additional_special_tokens": [token.token for token in tokens]})
    extend_vocabulary(model, len(tokenizer))
    for embedding in _embeddings(model):
        weight = embedding.weight.data
        weight[rows:] = weight[:rows].mean(dim=0)
        for token in tokens:
            described = encode_text(token.init_text, tokenizer)
            weight[tokenizer.convert_tokens_to_ids(token.token)] = weight[described].mean(dim=0)
    return list(range(rows, model.get_input_embeddings().weight.shape[0]))


def _embeddings(model: Any) -> list[Any]:
    """Input and output embeddings; one where they are tied."""
    both = [model.get_input_embeddings(), model.get_output_embeddings()]
    return both[:1] if both[0].weight is both[1].weight else both


def _with_adapter(model: Any, recipe: TrainRecipe, new_rows: list[int]) -> Any:
    import torch
    from peft import LoraConfig, get_peft_model

    # PEFT draws lora_A here, before the trainer sets its seed.
    torch.manual_seed(recipe.seed)
    # Listing only the input embedding of an untied model would lose the new output rows on reload; a tied one takes a plain list.
    tied = len(_embeddings(model)) == 1
    token_rows = (new_rows if tied else {"embed_tokens": new_rows, "lm_head": new_rows}) if new_rows else None
    config = LoraConfig(
        r=recipe.lora_rank,
        lora_alpha=recipe.lora_alpha,
        lora_dropout=recipe.lora_dropout,
        target_modules="all-linear",
        trainable_token_indices=token_rows,
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(model, config)
    # TRL's fused head reads `lm_head.bias`, which PEFT's wrapper for trained token rows lacks (trl 1.16, peft 0.21).
    if new_rows:
        model.get_base_model().get_output_embeddings().bias = None
    return model


def save_model(model: Any, tokenizer: Any, recipe: TrainRecipe, folder: Path) -> None:
    """Save the checkpoint with its tokenizer and control-token manifest; an adapter holds its token rows, not two whole embeddings."""
    if recipe.strategy == "lora":
        model.save_pretrained(folder, save_embedding_layers=False)
    else:
        model.config.use_cache = True
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write_manifest(folder, control_tokens_of(recipe), tokenizer)
