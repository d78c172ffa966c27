"""How long training takes, from the one step that was measured: LoRA on joined rows at Llama-2-7B's shape, on an H200.

Other models are converted by the FLOPs of a token (PaLM, App. B). Strategies and families whose step was not measured have no estimate.
"""

from dataclasses import dataclass

from refinery.llms.weights.shapes import config_of
from train.planning.memory import Parameters
from train.recipe import TrainRecipe

CARD, MEASURED = "H200", "361 ms for 4,096 tokens of Llama-2-7B"
# benchmarks/lab/measurements.md: 361 ms for 4,096 tokens in bfloat16, nothing recomputed, layers not fused. With all layers
# recomputed, a step took 463 ms where it took 311 without.
_SECONDS, _TOKENS, _RECOMPUTED = 0.361, 4096, 463 / 311
# Of that model: what its layers hold, and an adapter of rank 64 on all of their linear layers.
_FROZEN, _ADAPTER = 6_476_271_616, 159_907_840


@dataclass(frozen=True, slots=True)
class Duration:
    """Seconds that one `CARD` takes for a token. `measured` if that is of this kind of training, else converted from another kind."""

    seconds: float
    measured: bool


def time_of_a_token(recipe: TrainRecipe, parameters: Parameters) -> Duration | None:
    """The time of a token that is read, padding included; None where no measurement is near: in 4 bits, float32, T5 and encoders."""
    if recipe.family != "causal" or recipe.strategy not in ("lora", "full") or recipe.dtype != "bfloat16":
        return None
    layers = parameters.base - _embeddings(recipe)
    flops = 6 * layers if recipe.strategy == "full" else 4 * layers + 6 * parameters.adapter
    recomputed = 1 + (_RECOMPUTED - 1) * recipe.recomputed_share
    seconds = _SECONDS / _TOKENS * flops / (4 * _FROZEN + 6 * _ADAPTER) * recomputed
    alike = 0.95 < layers / _FROZEN < 1.05 and recipe.packing and recipe.strategy == "lora"
    return Duration(seconds, measured=alike)


def _embeddings(recipe: TrainRecipe) -> int:
    """Parameters that few tokens, or none, are multiplied with."""
    config = config_of(recipe.base)
    return config.vocab_size * config.hidden_size * (1 if config.tie_word_embeddings else 2)
