"""Rebuild the tiny base checkpoint: a Llama that knows the common world and can read, but has seen no control token and no sub-model task.

`python -m refinery.demo.pretrain recipes/demo/pretrain.yaml` (about 0.6 s a step on 2 CPU cores). Two stages, both needed at this size:
random sequences repeated, from which copying grows, and then closed-book questions about the common world mixed with reading and
synthesis in worlds drawn fresh for every step, so that nothing but reading answers them.
"""

import json
import math
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from pydantic import Field
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from refinery.demo.questions import QUESTION_TYPES, draw_questions
from refinery.demo.tokenizer import build_tokenizer
from refinery.demo.world import NamePools, WorldSize, common_world, demo_worlds, draw_world
from refinery.prompts.render import render_prompt
from refinery.recipe import Recipe, load_recipe
from refinery.records import Passage, Question
from refinery.segments import IGNORED_LABEL, EncodedRow, Segment, encode

FRESH_SIZE = WorldSize(films=24, books=8, people=24, cities=12, countries=6, shared_title_share=0.3)
ROW_KINDS = {"closed_book": 0.22, "passage": 0.03, "reading": 0.5, "synthesis": 0.25}
# Weight of the text around the answers in the loss, and how often passages stand in search order rather than shuffled.
TEXT_WEIGHT = 0.05
SEARCH_ORDER_SHARE = 0.75


class PretrainRecipe(Recipe):
    """What the tiny base checkpoint is made of and how long it is trained."""

    output_dir: Path = Field(description="where the checkpoint, its log and this recipe are written")
    start_from: Path | None = Field(None, description="go on from a checkpoint that this script wrote")
    seed: int = 0
    hidden_size: int = 128
    intermediate_size: int = 384
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    vocab_size: int = 1856
    repeat_steps: int = Field(500, description="steps of random sequences repeated, before any text")
    steps: int = Field(description="steps of text and questions")
    rows_per_step: int = 48
    learning_rate: float = 2e-3
    final_learning_rate: float = 5e-5
    eval_every: int = 500


def main() -> None:
    """Pre-train as the recipe says; the log is one JSON line per evaluation."""
    recipe = load_recipe(sys.argv[1], PretrainRecipe, sys.argv[2:])
    torch.manual_seed(recipe.seed)
    rng = random.Random(recipe.seed)
    tokenizer = build_tokenizer(recipe.vocab_size)
    model = LlamaForCausalLM(_llama_config(recipe, tokenizer))
    if recipe.start_from:
        model = LlamaForCausalLM.from_pretrained(recipe.start_from)
        tokenizer = PreTrainedTokenizerFast.from_pretrained(recipe.start_from)
    recipe.output_dir.mkdir(parents=True, exist_ok=True)
    log = (recipe.output_dir / "pretrain_log.jsonl").open("w", buffering=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.98), weight_decay=0.05, fused=True)
    started, tokens = time.time(), 0
    seen: set[int] = set()
    for step in range(recipe.repeat_steps + recipe.steps):
        rate = _learning_rate(step, recipe)
        rows = _repeated_rows(rng, recipe) if step < recipe.repeat_steps else _text_rows(rng, recipe, tokenizer)
        loss = _train_step(model, optimizer, rows, rate, tokenizer.pad_token_id)
        tokens += sum(len(row.input_ids) for row in rows)
        if step >= recipe.repeat_steps:
            seen.update(token for row in rows for token in row.input_ids)
        if (step + 1) % recipe.eval_every == 0 or step + 1 == recipe.repeat_steps + recipe.steps:
            scores = evaluate(model, tokenizer) if step >= recipe.repeat_steps else {}
            entry = {
                "step": step + 1,
                "tokens": tokens,
                "seconds": round(time.time() - started),
                "loss": round(loss, 4),
                **scores,
            }
            log.write(json.dumps(entry) + "\n")
            model.save_pretrained(recipe.output_dir)
            tokenizer.save_pretrained(recipe.output_dir)
    separate_unseen_rows(model, seen)
    model.save_pretrained(recipe.output_dir)


def _llama_config(recipe: PretrainRecipe, tokenizer: PreTrainedTokenizerFast) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=recipe.vocab_size,
        hidden_size=recipe.hidden_size,
        intermediate_size=recipe.intermediate_size,
        num_hidden_layers=recipe.num_hidden_layers,
        num_attention_heads=recipe.num_attention_heads,
        num_key_value_heads=recipe.num_attention_heads,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def _learning_rate(step: int, recipe: PretrainRecipe) -> float:
    """Warm-up over 100 steps, flat through the repeats, then a cosine to the final rate."""
    progress = max(0, step - recipe.repeat_steps) / max(1, recipe.steps)
    cosine = 0.5 * (1 + math.cos(math.pi * progress))
    return min(1.0, (step + 1) / 200) * (recipe.final_learning_rate + (recipe.learning_rate - recipe.final_learning_rate) * cosine)


def _train_step(model: LlamaForCausalLM, optimizer: torch.optim.Optimizer, rows: list[EncodedRow], rate: float, pad_id: int) -> float:
    """One optimizer step; rows of like length share a forward pass, and the head sees supervised positions only.

    Returns the loss on answers. The text around them is supervised too, at a small weight: a name's second word after its first is
    told by an earlier mention, which is practice in matching names.
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
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return total


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
    """Give tokens that no text held an embedding of their own, of the usual length.

    Training pushes all of them the same way (never this), so that fine-tuning could not tell `know` from `unknow` afterwards.
    """
    weight = model.get_input_embeddings().weight
    unseen = [token for token in range(weight.shape[0]) if token not in seen]
    usual = weight[sorted(seen)].norm(dim=1).mean()
    fresh = torch.randn(len(unseen), weight.shape[1], generator=torch.Generator().manual_seed(0))
    weight[unseen] = fresh / fresh.norm(dim=1, keepdim=True) * usual


def _repeated_rows(rng: random.Random, recipe: PretrainRecipe) -> list[EncodedRow]:
    """Random tokens, then the same again; the second half counts as the answer."""
    rows = []
    for _ in range(recipe.rows_per_step):
        half = [rng.randrange(3, recipe.vocab_size) for _ in range(rng.randint(16, 64))]
        rows.append(EncodedRow(half + half, [IGNORED_LABEL] * len(half) + half, []))
    return rows


def _text_rows(rng: random.Random, recipe: PretrainRecipe, tokenizer: PreTrainedTokenizerFast) -> list[EncodedRow]:
    fresh = _FreshWorld(rng)
    kinds = rng.choices(list(ROW_KINDS), weights=list(ROW_KINDS.values()), k=recipe.rows_per_step)
    return [encode(_ROW_WRITERS[kind](rng, fresh), tokenizer) for kind in kinds]


class _Common:
    """The common world and its single-hop questions, drawn once."""

    world = common_world()
    passages = world.passages()
    questions = draw_questions(world, random.Random(0), {"single_hop": 10**6})
    names = frozenset(entity.name for entity in world.entities.values())


class _FreshWorld:
    """A small world of resembling names that exists for one step."""

    def __init__(self, rng: random.Random) -> None:
        pools = NamePools().narrowed(rng, words=rng.choice((12, 20, 60)))
        world = draw_world(rng, FRESH_SIZE, label="fresh", taken=_Common.names, pools=pools)
        self.passages = {passage.id: passage for passage in world.passages()}
        counts = {"single_hop": 10**6, "two_hop": 40, "three_hop": 30, "comparison": 30, "ambiguous": 20}
        by_type = [draw_questions(world, rng, {kind: count}) for kind, count in counts.items()]
        self.questions = [rng.choice(questions) for questions in by_type if questions for _ in range(12)]
        self.follow_ups = [question for questions in by_type for question in questions if question.type != "ambiguous"]


def _closed_book(rng: random.Random, fresh: _FreshWorld) -> list[Segment]:
    question = rng.choice(_Common.questions)
    return answered(render_prompt("answer_direct", question=question.text), question.answers[0])


def _passage(rng: random.Random, fresh: _FreshWorld) -> list[Segment]:
    passage = rng.choice(_Common.passages)
    return [Segment(f"{passage.title}: {passage.text}", "answer", True), Segment("</s>", "control_token", True)]


def _reading(rng: random.Random, fresh: _FreshWorld) -> list[Segment]:
    """A question before its passages, as at inference; most rows go on with questions about the same passages, for denser signal."""
    chosen, segments = reading_row(rng.choice(fresh.questions), fresh.passages, rng, distractors=rng.choice((0, 1, 2, 3, 4)))
    answerable = [question for question in fresh.follow_ups if chosen.issuperset(question.supporting or [])]
    for question in rng.sample(answerable, min(len(answerable), rng.choice((0, 4, 8, 10)))):
        segments += answered(f"\nQuestion: {question.text}\nAnswer:", question.answers[0])
    return segments


def _synthesis(rng: random.Random, fresh: _FreshWorld) -> list[Segment]:
    kinds = rng.choice((("two_hop", "three_hop"), ("comparison",)))
    return synthesis_row(rng.choice([question for question in fresh.questions if question.type in kinds]))


_ROW_WRITERS: dict[str, Callable[[random.Random, _FreshWorld], list[Segment]]] = {
    "closed_book": _closed_book,
    "passage": _passage,
    "reading": _reading,
    "synthesis": _synthesis,
}


def answered(prompt: str, answer: str) -> list[Segment]:
    """A prompt and its answer, closed by the end of sequence."""
    return [Segment(prompt, "prompt"), Segment(f" {answer}", "answer", True), Segment("</s>", "control_token", True)]


def reading_row(
    question: Question, passages: dict[str, Passage], rng: random.Random, *, distractors: int
) -> tuple[set[str], list[Segment]]:
    """A question with the passages that answer it among near misses, mostly in the order a search would give; also the ids shown."""
    chosen = list(question.supporting or [])
    words = set(question.text.rstrip("?").split()) - _STOP_WORDS
    near = [passage.id for passage in passages.values() if not words.isdisjoint(_words(passage))]
    kind = chosen[0].split(":")[1]
    alike = [passage_id for passage_id in passages if passage_id.split(":")[1] == kind]
    for _ in range(distractors):
        candidate = rng.choice(rng.choice([near or alike, alike, list(passages)]))
        if candidate not in chosen and passages[candidate].title.split(" (")[0] not in question.text:
            chosen.append(candidate)
    rng.shuffle(chosen)
    if rng.random() < SEARCH_ORDER_SHARE:
        chosen.sort(key=lambda i: -sum(word in words for word in _words(passages[i])))
    answer = question.answers[0]
    if question.type == "ambiguous" and chosen.index(question.supporting[0]) > chosen.index(question.supporting[1]):
        answer = question.answers[1]
    prompt = render_prompt("answer_with_passages", question=question.text, passages=[passages[i] for i in chosen])
    return set(chosen), answered(prompt, answer)


def _words(passage: Passage) -> list[str]:
    return f"{passage.title} {passage.text}".replace(".", "").replace(",", "").split()


_STOP_WORDS = frozenset("Who When Where What Which is was the of in born released film came out first or country capital".split())


def synthesis_row(question: Question) -> list[Segment]:
    """A question with its sub-questions answered, references filled in."""
    filled: list[tuple[str, str]] = []
    for sub in question.decomposition or []:
        text = sub.text
        for number, (_, earlier) in enumerate(filled, 1):
            text = text.replace(f"#{number}", earlier)
        filled.append((text, sub.answer or ""))
    return answered(render_prompt("answer_from_sub_answers", question=question.text, sub_answers=filled), question.answers[0])


@torch.no_grad()
def evaluate(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> dict[str, float]:
    """Share of rows whose answer is predicted token for token: closed-book, and reading and synthesis in a world never trained on."""
    rng = random.Random(1)
    world = demo_worlds(0)["validation"]
    passages = {passage.id: passage for passage in world.passages()}
    rows = {"closed_book": [_closed_book(rng, None) for _ in range(128)]}  # type: ignore[arg-type]
    for kind in QUESTION_TYPES:
        questions = draw_questions(world, rng, {kind: 96})
        rows[f"reading_{kind}"] = [reading_row(question, passages, rng, distractors=2)[1] for question in questions]
        if questions[0].decomposition and kind != "single_hop":
            rows[f"synthesis_{kind}"] = [synthesis_row(question) for question in questions]
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
