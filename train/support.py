"""What does not work, why, and what to use instead: one list, checked when a recipe is read and again when a run starts.

The table in accelerate_configs/README.md is printed from it by `support_table`.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

from refinery.errors import RecipeError
from refinery.reporting.markdown import table
from refinery.tasks.base import PairTask, TrajectoryTask, Writer
from train.method import method_of
from train.settings import TrainSettings

Sharding = Literal["none", "ddp", "zero1", "zero2", "zero3", "fsdp2"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A combination that is refused: `applies(recipe)` and, where processes matter, only under one of these launches."""

    what: str
    why: str
    instead: str
    applies: Callable[[TrainSettings], bool]
    under: tuple[str, ...] = ()


REFUSALS = (
    Refusal(
        "`dtype: float16`",
        "a float16 gradient cannot be unscaled for float16 weights, and T5 overflows to NaN in it",
        "`dtype: bfloat16`, or `float32` on hardware without it",
        lambda recipe: recipe.dtype == "float16",
    ),
    Refusal(
        "`strategy: qlora` with `family: seq2seq` or `classifier`",
        "those models are small, T5 keeps layers in float32 that 4 bits would spoil, and neither is tested",
        "`strategy: lora`",
        lambda recipe: recipe.strategy == "qlora" and recipe.family != "causal",
    ),
    Refusal(
        "`strategy: dora` or `alora` with `family: seq2seq` or `classifier`",
        "an activated adapter needs a causal cache, and DoRA of these is not tested",
        "`strategy: lora`",
        lambda recipe: recipe.strategy in ("dora", "alora") and recipe.family != "causal",
    ),
    Refusal(
        "`family: classifier` with a task that writes, such as `decomposition`, `refinement` or `traces`",
        "an encoder tells labels apart and writes nothing",
        "`family: seq2seq` or `causal`",
        lambda recipe: recipe.family == "classifier" and isinstance(recipe.learned, Writer | TrajectoryTask),
    ),
    Refusal(
        "`strategy: alora` with `task: refinement`",
        "the generator's control tokens are new rows of the embedding, which change what stands before any invocation",
        "`strategy: lora`, or `alora` for RA-ISF's judges",
        lambda recipe: recipe.strategy == "alora" and isinstance(recipe.learned, TrajectoryTask),
    ),
    Refusal(
        "`strategy: alora` with a task that writes, such as `decomposition` or `traces`",
        "its reply is decoded token by token, and the inference engine acts on the pass that reads the invocation only",
        "`strategy: lora`, and `alora` for the two judges, whose label is read from that pass",
        lambda recipe: recipe.strategy == "alora" and isinstance(recipe.learned, Writer),
    ),
    Refusal(
        "`strategy: dora` with a sub-model's task",
        "sub-models share a batch on one base, and PEFT refuses DoRA adapters in a mixed batch",
        "`strategy: lora` or `alora`",
        lambda recipe: recipe.strategy == "dora" and recipe.learned.sub_model,
    ),
    Refusal(
        "`strategy: alora` with `packing` or `padding_free`",
        "an adapter is activated once a row, at its last invocation: of several rows joined into one, only the last would train",
        "both false",
        lambda recipe: recipe.strategy == "alora" and (recipe.packing or recipe.padding_free),
    ),
    Refusal(
        "`packing` or `padding_free` with `family: seq2seq` or `classifier`",
        "an encoder sees every row that shares its sequence",
        "`train_sampling_strategy: group_by_length`",
        lambda recipe: (recipe.packing or recipe.padding_free) and recipe.family != "causal",
    ),
    Refusal(
        "`loss_weights` or `kernels` with `family: seq2seq` or `classifier`",
        "their trainers count every target alike, and the fused kernels are those of decoders",
        "neither",
        lambda recipe: bool(recipe.loss_weights or recipe.kernels) and recipe.family != "causal",
    ),
    Refusal(
        "`task: preference` with `family: seq2seq` or `classifier`",
        "its pairs are whole paths of a generator that reads and writes one sequence",
        "`family: causal`",
        lambda recipe: isinstance(recipe.learned, PairTask) and recipe.family != "causal",
    ),
    Refusal(
        "`task: preference` with another strategy than `lora`",
        "DPO's reference is the model without its new adapter, and no other kind of adapter is tested there",
        "`strategy: lora`",
        lambda recipe: isinstance(recipe.learned, PairTask) and recipe.strategy != "lora",
    ),
    Refusal(
        "`task: preference` with `packing`, `padding_free`, `loss_weights`, `label_balance` or `kernels`",
        "its loss is of whole pairs, side by side in a batch",
        "none of them",
        lambda recipe: (
            isinstance(recipe.learned, PairTask)
            and bool(recipe.packing or recipe.padding_free or recipe.loss_weights or recipe.label_balance or recipe.kernels)
        ),
    ),
    Refusal(
        "`task: preference` under ZeRO-3, FSDP2 or context parallelism",
        "the reference's pass through a split model, adapter switched off, is not tested",
        "accelerate_configs/ddp.yaml or zero2.yaml",
        lambda recipe: isinstance(recipe.learned, PairTask),
        ("zero3", "fsdp2", "context_parallel"),
    ),
    Refusal(
        "`dtype: float32` with a FlashAttention kernel",
        "the kernel computes in 16 bits only",
        "`attn_implementation: sdpa`, or `dtype: bfloat16`",
        lambda recipe: recipe.dtype == "float32" and "flash" in recipe.attn_implementation,
    ),
    Refusal(
        "`strategy: qlora` under ZeRO-3 or FSDP2",
        "4-bit weights are stored as bytes: sharded as numbers they train garbage without an error (accelerate #3983)",
        "accelerate_configs/ddp.yaml or zero2.yaml: a 7B base takes 4 GB on each GPU",
        lambda recipe: recipe.strategy == "qlora",
        ("zero3", "fsdp2"),
    ),
    Refusal(
        "`strategy: dora` under ZeRO-3 or FSDP2",
        "DoRA's magnitudes need the norm of whole weight matrices, of which each process holds a part",
        "accelerate_configs/ddp.yaml or zero2.yaml",
        lambda recipe: recipe.strategy == "dora",
        ("zero3", "fsdp2"),
    ),
    Refusal(
        "`packing` or `padding_free` under context parallelism",
        "it cuts a sequence into ranges of positions, and rows joined in one sequence are told apart by theirs",
        "both false, or a file without parallelism_config",
        lambda recipe: recipe.packing or recipe.padding_free,
        ("context_parallel",),
    ),
    Refusal(
        "an adapter under context parallelism",
        "its gradients are not reduced over the parts of a sequence (trl #4314)",
        "`strategy: full`, or a file without parallelism_config",
        lambda recipe: recipe.strategy != "full",
        ("context_parallel",),
    ),
    Refusal(
        "`gradient_checkpointing: true` with `fsdp_activation_checkpointing: true`",
        "activations would be recomputed twice, and each layer gathered once more",
        "`gradient_checkpointing: false`, which leaves it to FSDP",
        lambda recipe: recipe.gradient_checkpointing,
        ("recomputes",),
    ),
)


def check_support(recipe: TrainSettings, *, launch: Collection[str] | None = None) -> None:
    """Raise RecipeError for a combination that is known not to work.

    Without `launch` (when the recipe is read) those that hang on the recipe alone are looked for, with it those of the launch: how it
    splits the model, and its traits.
    """
    method_of(recipe)
    for refusal in REFUSALS:
        at_stake = not refusal.under if launch is None else not set(launch).isdisjoint(refusal.under)
        if at_stake and refusal.applies(recipe):
            message = f"{refusal.what}: refused, because {refusal.why}. Use {refusal.instead}.".replace("`", "")
            raise RecipeError(message if launch is None else f"{recipe.where}: {message}")  # whoever reads a recipe names its file


def support_table() -> str:
    """The refusals as a Markdown table."""
    rows = [(refusal.what, refusal.why, refusal.instead) for refusal in REFUSALS]
    return "\n".join(table(("refused", "because", "use instead"), rows))
