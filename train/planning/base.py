"""What can be done with a base: train it, decode it here along a path and in trees, merge its adapter, and write its tool calls."""

from typing import Any

from refinery.contract.tool_template import tool_template
from refinery.errors import CheckpointError
from refinery.llms.weights.checkpoint import load_tokenizer
from refinery.llms.weights.decoder_support import check_decoder
from refinery.llms.weights.families import auto_class
from refinery.llms.weights.shapes import config_of
from train.settings import TrainSettings


def base_lines(recipe: TrainSettings) -> list[str]:
    """Yes or no for each use of a recipe's base, then the reason of each no. Nothing where its configuration is not here."""
    try:
        config = config_of(recipe.base)
    except CheckpointError:
        return []
    decoding = _not_decoded(recipe, config)
    reasons = {
        "train": _not_trained(recipe, config),
        "decode": decoding,
        "tree decode": decoding,
        "merge": _not_merged(recipe),
        "tool calls": _no_tool_calls(recipe),
    }
    uses = ", ".join(f"{use} {'no' if reason else 'yes'}" for use, reason in reasons.items())
    by_reason = {reason: ", ".join(use for use in reasons if reasons[use] == reason) for reason in reasons.values() if reason}
    return [f"base         {config.model_type}: {uses}", *(f"  no {of}: {reason}" for reason, of in by_reason.items())]


def _not_trained(recipe: TrainSettings, config: Any) -> str:
    known = type(config) in auto_class(recipe.family)._model_mapping
    return "" if known else f"transformers has no {recipe.family} model of this kind"


def _not_decoded(recipe: TrainSettings, config: Any) -> str:
    if recipe.family == "classifier":
        return "an encoder writes no text; its labels are read here"
    try:
        if recipe.family == "causal":
            check_decoder(config, path=recipe.base)
    except CheckpointError as error:
        return str(error)
    return ""


def _not_merged(recipe: TrainSettings) -> str:
    if recipe.strategy == "full":
        return "strategy: full has no adapter, so its folder is a whole model already"
    return "an aLoRA adapter acts from its invocation on only" if recipe.strategy == "alora" else ""


def _no_tool_calls(recipe: TrainSettings) -> str:
    if recipe.family != "causal":
        return "turns are written in a chat template, which only decoders have"
    try:
        tool_template(load_tokenizer(recipe.base, recipe.chat_template))
    except CheckpointError as error:
        return str(error)
    return ""
