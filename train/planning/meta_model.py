"""The model that a recipe trains, without storage (on the meta device): its parameters can be counted and its forward pass taken."""

from typing import TYPE_CHECKING, Any

from refinery.llms.weights.checkpoint import load_tokenizer
from refinery.llms.weights.embeddings import embedding_rows, extend_vocabulary
from refinery.llms.weights.families import auto_class, label_arguments
from refinery.llms.weights.shapes import RESERVED, SHAPES, config_of
from train.families.adapter import add_adapter
from train.families.vocabulary import add_control_tokens, control_tokens_of
from train.recipe import TrainRecipe
from train.rows.data import labels_of

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def meta_model(recipe: TrainRecipe, *, layers: int | None = None) -> Any:
    """The model that the recipe trains, without storage: vocabulary extended, adapter around it. `layers` makes it shallower.

    Raises CheckpointError when neither its shape nor its tokenizer can be found.
    """
    import torch

    config = config_of(recipe.base)
    for name in ("num_hidden_layers", "num_layers", "num_decoder_layers"):
        if layers is not None and hasattr(config, name):
            setattr(config, name, layers)
    config.use_cache = False
    for name, value in label_arguments(labels_of(recipe)).items():
        setattr(config, name, value)
    with torch.device("meta"):
        model = auto_class(recipe.family).from_config(config).to(getattr(torch, recipe.dtype))
        if getattr(config, "is_gated_act", False):  # T5 1.1 and Flan-T5 have a separate head, although transformers 5 ties every new T5
            model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))
        tokenizer, rows = _extended(model, recipe)
        return model if recipe.strategy == "full" else add_adapter(model, tokenizer, recipe, rows)


def _extended(model: "PreTrainedModel | PeftModel", recipe: TrainRecipe) -> tuple[Any, list[int]]:
    """As `add_control_tokens`; for a base of the table, whose tokenizer need not be here, what that would do (no tokenizer pads there)."""
    tokens = control_tokens_of(recipe)
    if recipe.base not in SHAPES:
        return add_control_tokens(model, load_tokenizer(recipe.base, recipe.chat_template), tokens)
    if not tokens:
        return None, []
    rows = embedding_rows(model)
    new = len(tokens) + (recipe.family == "causal")  # T5 has a padding token
    if RESERVED.get(recipe.base, 0) >= new:
        return None, list(range(rows - new, rows))
    extend_vocabulary(model, rows + new)
    return None, list(range(rows, rows + new))
