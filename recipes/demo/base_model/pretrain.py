"""Rebuild the tiny base checkpoint: a Llama that knows the common world and can read, but has seen no control token and no sub-model task.

`torchrun --nproc-per-node 2 -m recipes.demo.base_model.pretrain recipes/demo/pretrain.yaml`: one process with one thread per core, which is
faster than one process with two threads, but less so on a busy machine. It starts from weights that can copy
(`recipes.demo.base_model.copying`) and trains on the rows of `recipes.demo.base_model.pretrain_rows`.
"""

import json
import math
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import torch
from pydantic import Field
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from recipes.demo.base_model.copying import order_rows, write_copying_heads
from recipes.demo.base_model.pretrain_rows import ROW_WRITERS, UNKNOWN, FreshWorld, answered, closed_book_row, reading_row, synthesis_row
from recipes.demo.base_model.tokenizer import build_tokenizer
from refinery.contract.control_tokens import seal_weights
from refinery.contract.segments import IGNORED_LABEL, EncodedRow, encode
from refinery.contract.tokenizer import Tokenizer
from refinery.demo.world.entities import demo_worlds
from refinery.demo.world.names import YEARS
from refinery.demo.world.questions import QUESTION_TYPES, draw_questions, with_years
from refinery.prompts.render import render_prompt
from refinery.runtime.recipe import Recipe, load_recipe
from refinery.runtime.run.process_rank import num_processes, process_rank

# Weight of the text around the answers in the loss.
TEXT_WEIGHT = 0.05


class PretrainRecipe(Recipe):
    """The data, the shape and the training schedule of the tiny base checkpoint."""

    output_dir: Path = Field(description="where the checkpoint, its log and this recipe are written")
    start_from: Path | None = Field(default=None, description="go on from a checkpoint that this script wrote")
    row_kinds: dict[str, float] = Field(
        default={"closed_book": 0.26, "unknown": 0.06, "passage": 0.03, "reading": 0.34, "step_by_step": 0.17, "synthesis": 0.14},
        description="share of each kind among the rows of a step",
    )
    crowded_share: float = Field(default=0.0, description="share of the steps whose world makes all its names of a few words")
    seed: int = 0
    hidden_size: int = 128
    intermediate_size: int = 384
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    vocab_size: int = 1856
    rope_theta: float = Field(default=1e8, description="high, so that most dimensions of so small a head carry content, not place")
    steps: int = Field(description="over which the learning rate falls")
    stop_at: int | None = Field(default=None, description="end before the learning rate has fallen; another stage goes on")
    rows_per_step: int = 32
    learning_rate: float = 2e-3
    final_learning_rate: float = 5e-5
    eval_every: int = 500


def main() -> None:
    """Pre-train as the recipe says; the log is one JSON line per evaluation."""
    recipe = load_recipe(sys.argv[1], PretrainRecipe, sys.argv[2:])
    rank, processes = process_rank(), num_processes()
    if processes > 1:
        torch.distributed.init_process_group("gloo")
    torch.manual_seed(recipe.seed)
    rng = random.Random(f"{recipe.seed}-{rank}")
    model, tokenizer = _begin(recipe)
    recipe.output_dir.mkdir(parents=True, exist_ok=True)
    log = (recipe.output_dir / "pretrain_log.jsonl").open("w", buffering=1) if rank == 0 else None
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.98), weight_decay=0.05, fused=True)
    started, tokens = time.time(), 0
    seen: set[int] = set()
    last = recipe.stop_at or recipe.steps
    for step in range(last):
        world = FreshWorld(rng, crowded=rng.random() < recipe.crowded_share)
        rows = _text_rows(rng, recipe.row_kinds, recipe.rows_per_step // processes, world, tokenizer)
        loss = _train_step(model, optimizer, rows, _learning_rate(step, recipe), tokenizer.pad_token_id)
        tokens += sum(len(row.input_ids) for row in rows) * processes
        seen.update(token for row in rows for token in row.input_ids)
        if rank == 0 and ((step + 1) % recipe.eval_every == 0 or step + 1 == last):
            entry = {"step": step + 1, "tokens": tokens, "seconds": round(time.time() - started), "loss": round(loss, 4)}
            assert log is not None
            log.write(json.dumps(entry | evaluate(model, tokenizer)) + "\n")
            model.save_pretrained(recipe.output_dir)
            tokenizer.save_pretrained(recipe.output_dir)
    if rank == 0:
        separate_unseen_rows(model, seen)
        model.save_pretrained(recipe.output_dir)
        seal_weights(recipe.output_dir)


def _begin(recipe: PretrainRecipe) -> tuple[LlamaForCausalLM, Tokenizer]:
    """An earlier run's model and tokenizer, or new ones."""
    if recipe.start_from:
        tokenizer = cast(Tokenizer, PreTrainedTokenizerFast.from_pretrained(recipe.start_from))
        return LlamaForCausalLM.from_pretrained(recipe.start_from), tokenizer
    tokenizer = build_tokenizer(recipe.vocab_size)
    model = LlamaForCausalLM(_llama_config(recipe, tokenizer))
    write_copying_heads(model, seed=recipe.seed)
    order_rows(model, [tokenizer(f" {year}")["input_ids"][0] for year in YEARS])
    return model, tokenizer


def _llama_config(recipe: PretrainRecipe, tokenizer: Tokenizer) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=recipe.vocab_size,
        hidden_size=recipe.hidden_size,
        intermediate_size=recipe.intermediate_size,
        num_hidden_layers=recipe.num_hidden_layers,
        num_attention_heads=recipe.num_attention_heads,
        num_key_value_heads=recipe.num_attention_heads,
        max_position_embeddings=2048,
        rope_parameters={"rope_type": "default", "rope_theta": recipe.rope_theta},
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def _learning_rate(step: int, recipe: PretrainRecipe) -> float:
    """Warm-up over 200 steps and a cosine to the final rate."""
    cosine = 0.5 * (1 + math.cos(math.pi * step / recipe.steps))
    return min(1.0, (step + 1) / 200) * (recipe.final_learning_rate + (recipe.learning_rate - recipe.final_learning_rate) * cosine)


def _train_step(model: LlamaForCausalLM, optimizer: torch.optim.Optimizer, rows: list[EncodedRow], rate: float, pad_id: int) -> float:
    """One optimizer step; rows of like length share a forward pass, and the head sees supervised positions only.

    Returns the loss on answers. The text around them is supervised too, at a small weight: an earlier mention determines a name's second
    word, which is practice in matching names.
    """
    for group in optimizer.param_groups:
        group["lr"] = rate
    rows = sorted(rows, key=lambda row: len(row.input_ids))
    answers = sum(label != IGNORED_LABEL for row in rows for label in row.labels[1:])
    others = sum(len(row.labels) - 1 for row in rows) - answers
    total = 0.0
    for start in range(0, len(rows), 16):
        logits, targets, is_answer = _logits(model, rows[start : start + 16], pad_id)
        losses = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
        on_answers = losses[is_answer].sum() / answers
        (on_answers + TEXT_WEIGHT * losses[~is_answer].sum() / others).backward()
        total += on_answers.item()
    _average_gradients(model)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return total


def _average_gradients(model: LlamaForCausalLM) -> None:
    """Average all gradients over the processes, if there are several, in one message."""
    if torch.distributed.is_initialized():
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        torch.distributed.all_reduce(flat)
        flat /= torch.distributed.get_world_size()
        for gradient, part in zip(gradients, flat.split([gradient.numel() for gradient in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))


def _logits(model: LlamaForCausalLM, rows: Sequence[EncodedRow], pad_id: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits (tokens, vocab), targets (tokens,) and whether each is an answer's, of right-padded rows, padding left out."""
    width = max(len(row.input_ids) for row in rows)
    ids = torch.tensor([row.input_ids + [pad_id] * (width - len(row.input_ids)) for row in rows])
    labels = torch.tensor([row.labels + [IGNORED_LABEL] * (width - len(row.labels)) for row in rows])
    # Causal attention never looks at padding on the right, so no mask is needed.
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]  # (rows, width - 1, hidden)
    targets, is_answer = ids[:, 1:], labels[:, 1:] != IGNORED_LABEL
    real = targets != pad_id
    return model.lm_head(hidden[real]), targets[real], is_answer[real]


@torch.no_grad()
def separate_unseen_rows(model: LlamaForCausalLM, seen: set[int]) -> None:
    """Give each token that occurred in no text a new embedding, drawn like the others'.

    Training pushes all of them in the same direction, away from every text, so fine-tuning could not distinguish `know` from `unknow`.
    """
    weight = model.model.embed_tokens.weight
    unseen = [token for token in range(weight.shape[0]) if token not in seen]
    usual = weight[sorted(seen)]
    fresh = torch.randn(len(unseen), weight.shape[1], generator=torch.Generator().manual_seed(0))
    weight[unseen] = usual.mean(dim=0) + fresh * usual.std(dim=0)


def _text_rows(rng: random.Random, shares: dict[str, float], count: int, fresh: FreshWorld, tokenizer: Tokenizer) -> list[EncodedRow]:
    kinds = rng.choices(list(shares), weights=list(shares.values()), k=count)
    return [encode(ROW_WRITERS[kind](rng, fresh), tokenizer) for kind in kinds]


@torch.no_grad()
def evaluate(model: LlamaForCausalLM, tokenizer: Tokenizer) -> dict[str, float]:
    """Share of rows whose answer is predicted token for token: closed-book, and reading and synthesis in a world never trained on."""
    rng = random.Random(1)
    world = demo_worlds(0)["validation"]
    passages = {passage.id: passage for passage in world.passages()}
    unread = draw_questions(world, rng, {"single_hop": 128})
    rows = {
        "closed_book": [closed_book_row(rng, None) for _ in range(128)],
        "unknown": [answered(render_prompt("answer_direct", question=question.text), UNKNOWN) for question in unread],
    }
    for kind in QUESTION_TYPES:
        questions = draw_questions(world, rng, {kind: 96})
        rows[f"reading_{kind}"] = [reading_row(question, passages, rng, distractors=2)[1] for question in questions]
        if questions[0].decomposition and kind != "single_hop":
            rows[f"synthesis_{kind}"] = [synthesis_row(question) for question in questions]
        if kind == "comparison":
            stated = [question.model_copy(update={"text": with_years(question)}) for question in questions]
            rows["reading_comparison_with_years"] = [reading_row(question, passages, rng, distractors=2)[1] for question in stated]
    return {
        name: round(_exact_share(model, [encode(s, tokenizer) for s in group], tokenizer.pad_token_id), 3) for name, group in rows.items()
    }


def _exact_share(model: LlamaForCausalLM, rows: list[EncodedRow], pad_id: int) -> float:
    right = 0
    for start in range(0, len(rows), 32):
        chunk = rows[start : start + 32]
        logits, targets, is_answer = _logits(model, chunk, pad_id)
        hits = (logits.argmax(-1) == targets)[is_answer].tolist()
        for row in chunk:
            count = sum(label != IGNORED_LABEL for label in row.labels)
            right += all(hits[:count])
            hits = hits[count:]
    return right / len(rows)


if __name__ == "__main__":
    main()
