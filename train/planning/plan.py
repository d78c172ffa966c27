"""`refinery train RECIPE --dry-run`: what a run would do and need, before it starts: steps, tokens, parameters, memory on each GPU.

Reads the data and the tokenizer, and builds the model without storage; downloads no weights.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from refinery.contract.segments import IGNORED_LABEL
from refinery.errors import CheckpointError, RefineryError
from refinery.llms.weights.checkpoint import load_tokenizer
from refinery.llms.weights.device import own_device
from refinery.runtime.forecast import Expected, Forecast
from train.families.vocabulary import control_tokens_of, extend_tokenizer
from train.launch.launch import Launch, launch_from_env, launch_of, read_accelerate_config
from train.method import load_family, method_of
from train.planning.base import base_lines
from train.planning.duration import CARD, MEASURED, time_of_a_token
from train.planning.memory import HostMemory, MemoryEstimate, Parameters, estimate, host_memory
from train.recipe import TrainRecipe
from train.rows.data import check_labels, training_records
from train.rows.length_filter import num_tokens
from train.support import check_support


@dataclass(frozen=True, slots=True)
class Work:
    """What is trained on: records read, rows encoded and what was done with over-long ones, and the optimizer's steps.

    Where the base's tokenizer is not here (`counted` is false), each record is taken for one row and its tokens are unknown.
    """

    records: int
    rows: int
    overlong: dict[str, Any]
    tokens: int
    tokens_trained: int
    longest: int
    longest_target: int
    steps: int
    batch: int
    counted: bool


def plan_lines(recipe: TrainRecipe, launch: Launch) -> list[str]:
    """The plan of a run under a launch, as lines. Raises RecipeError for a combination that is refused, and as reading the data would."""
    check_support(recipe, launch={launch.sharding, *launch.traits})
    if plan := method_of(recipe).plan:
        return [*plan(recipe, launch), *base_lines(recipe)]
    work = plan_work(recipe, launch)
    length = recipe.max_length if recipe.packing or not work.counted else work.longest
    target_length = 0 if recipe.family != "seq2seq" else work.longest_target if work.counted else length
    shown, why = _decided(recipe, launch, length, target_length)
    parameters, memory = estimate(shown, launch, length=length, target_length=target_length)
    host = host_line(host_memory(shown, launch, parameters, memory), launch)
    lines = [*_work_lines(work, recipe, launch), parameters_line(parameters), *memory_lines(memory, shown, launch, length), *why, host]
    return [*lines, *_layer_lines(recipe), *_time_lines(shown, work, parameters, launch), *base_lines(recipe)]


def _decided(recipe: TrainRecipe, launch: Launch, length: int, target_length: int) -> tuple[TrainRecipe, list[str]]:
    """The recipe with `gradient_checkpointing: auto` as it would be decided where no layer has to be recomputed, and what more it says."""
    if recipe.gradient_checkpointing != "auto":
        return recipe, []
    none, every = (recipe.model_copy(update={"gradient_checkpointing": share}) for share in (False, True))
    least = estimate(every, launch, length=length, target_length=target_length)[1].total
    line = f"  with all layers recomputed {least / 2**30:.2f} GiB: auto recomputes as few as the memory that is free then asks for"
    return none, [line]


def forecast(recipe: TrainRecipe, expected: Expected, accelerate: str | None = None) -> Forecast:
    """The forecast of a run whose rows may not exist yet, for the plan of a project: their number, and the memory as it is launched."""
    weights = recipe.data_weights or [1.0] * len(recipe.data)
    counts = [count * weight for path, weight in zip(recipe.data, weights, strict=True) if (count := expected.rows_of(path)) is not None]
    rows = round(sum(counts)) if counts else None
    values = read_accelerate_config(accelerate) if accelerate else {}
    launch = launch_of(values, source=accelerate) if accelerate else launch_from_env()
    on_gpu = not values.get("use_cpu") and (own_device() != "cpu" or launch.processes > 1)
    try:
        parameters, memory = estimate(recipe, launch, length=recipe.max_length)
    except (RefineryError, OSError):  # the base is not here, or its family has no estimate
        return Forecast(rows)
    needed = memory.total if on_gpu else host_memory(recipe, launch, parameters, memory).without_gpu
    return Forecast(rows, memory_bytes=needed, gpus=launch.processes if on_gpu else 0)


def plan_work(recipe: TrainRecipe, launch: Launch) -> Work:
    """Read and encode the data as training would, and count its steps under a launch."""
    records = training_records(recipe)
    check_labels(records, recipe)
    try:
        tokenizer, _ = extend_tokenizer(load_tokenizer(recipe.base, recipe.chat_template), control_tokens_of(recipe))
    except CheckpointError:
        steps, batch = _steps(len(records), recipe, launch)
        return Work(len(records), len(records), {}, 0, 0, 0, 0, steps, batch, counted=False)
    rows, overlong = load_family(recipe).encode_rows(records, recipe, tokenizer)
    examples = len(rows)
    if recipe.packing:
        from train.rows.packing import build_dataset

        examples = len(build_dataset(rows, bin_length=recipe.max_length))
    steps, batch = _steps(examples, recipe, launch)
    written = [[label for label in row.labels if label != IGNORED_LABEL] for row in rows]
    return Work(
        records=len(records),
        rows=len(rows),
        overlong=overlong,
        tokens=sum(len(row.input_ids) for row in rows),
        tokens_trained=sum(map(len, written)),
        longest=max(map(num_tokens, rows)),
        longest_target=max(map(len, written)),
        steps=steps,
        batch=batch,
        counted=True,
    )


def _steps(examples: int, recipe: TrainRecipe, launch: Launch) -> tuple[int, int]:
    """(optimizer steps, examples a step), as transformers' Trainer counts them: an epoch's last step may be smaller."""
    batches = math.ceil(examples / (recipe.per_device_train_batch_size * launch.processes))
    an_epoch = math.ceil(batches / recipe.gradient_accumulation_steps)
    batch = recipe.per_device_train_batch_size * recipe.gradient_accumulation_steps * launch.processes
    return recipe.max_steps if recipe.max_steps > 0 else math.ceil(recipe.epochs * an_epoch), batch


def launch_line(launch: Launch) -> str:
    """How many processes there are, and how they split the model."""
    return f"launch       {launch.source}: {launch.processes} process{'es' if launch.processes > 1 else ''}, model split: {launch.sharding}"


def _work_lines(work: Work, recipe: TrainRecipe, launch: Launch) -> list[str]:
    what = "sequences" if recipe.packing else "rows"
    lines = [
        launch_line(launch),
        f"steps        {work.steps:,} of {work.batch:,} {what} ({recipe.per_device_train_batch_size} on each of {launch.processes}, "
        f"{recipe.gradient_accumulation_steps} accumulated)",
    ]
    if not work.counted:
        return [*lines, f"rows         {work.records:,}; tokens are not counted: the tokenizer of {recipe.base} is not here"]
    dropped = work.overlong.get("rows_dropped_overlong", 0)
    done = ", ".join(f"{name} {count:,}" for name, count in work.overlong.items() if isinstance(count, int))
    return [
        *lines,
        f"rows         {work.rows:,} of {work.records:,} records; {done} ({dropped / (work.rows + dropped):.1%} dropped for their length)",
        f"tokens       {work.tokens:,} an epoch, longest row {work.longest:,}; {work.tokens_trained:,} train "
        f"(label density {work.tokens_trained / work.tokens:.1%})",
    ]


def parameters_line(parameters: Parameters) -> str:
    """Parameters by the part that they belong to, and how many train."""
    return (
        f"parameters   base {parameters.base:,}, adapter {parameters.adapter:,}, token rows {parameters.token_rows:,}; "
        f"{parameters.trained:,} train ({parameters.trained / (parameters.base + parameters.adapter + parameters.token_rows):.3%})"
    )


def _layer_lines(recipe: TrainRecipe) -> list[str]:
    """How a decoder's layers are computed."""
    if recipe.family != "causal" or not recipe.fused_layers:
        return []
    return [f"layers       fused{' on a GPU' if recipe.fused_layers == 'auto' else ''}, which keeps less than planned here for plain ones"]


def _time_lines(recipe: TrainRecipe, work: Work, parameters: Parameters, launch: Launch) -> list[str]:
    """The time on the one card on which this kind of training was measured; nothing for other kinds, or for several processes."""
    time = time_of_a_token(recipe, parameters)
    if time is None or not time.measured or launch.processes > 1:
        return []
    hours = work.steps * work.batch * recipe.max_length * time.seconds / 3600
    return [f"time         about {hours:.1f} h on one {CARD}, at {MEASURED}; no other card was measured"]


def memory_lines(
    memory: MemoryEstimate, recipe: TrainRecipe, launch: Launch, length: int, *, beside: Sequence[tuple[str, float]] = ()
) -> list[str]:
    """Bytes on each GPU by what they are for. `beside` names what else is held while a batch of rows of `length` tokens trains."""
    total = memory.total + sum(size for _, size in beside)
    unit, size_of_unit = ("GiB", 2**30) if total > 2**30 else ("MiB", 2**20)
    share = 1.0 if "recomputes" in launch.traits else recipe.recomputed_share
    recomputed = f", {share:.0%} of layers recomputed" if share else ""
    return [
        f"memory       {unit} on each GPU, {recipe.dtype}, batches of {recipe.per_device_train_batch_size} x {length:,} tokens"
        f"{recomputed}; add about 1 GiB for CUDA and fragments",
        *(f"  {name:<11}{size / size_of_unit:10.2f}" for name, size in (*memory.on_gpu().items(), *beside, ("total", total))),
    ]


def host_line(host: HostMemory, launch: Launch) -> str:
    """What the launch takes of each machine's own memory."""
    first, others, without_gpu = (size / 2**30 for size in (host.first, host.others, host.without_gpu))
    loading = f"{first:.1f} GiB" if launch.processes == 1 else f"{first:.1f} GiB in the first process and {others:.1f} in each other"
    training = f"; without a GPU, {without_gpu:.1f} GiB in each process while it trains, evaluation not counted"
    needs_gpu = launch.sharding == "fsdp2" or launch.sharding.startswith("zero")
    return f"host memory  {loading} while loading{'' if needs_gpu else training}"
