"""Evaluation on held-out rows, prompted as in inference: label probabilities for a judge, generation for a model that writes.

The same scores are computed for the model in training (train/trainers/generative_eval.py) and afterwards for the checkpoint loaded back
from disk. A trajectory is evaluated step by step: for each, the model is given the right steps so far with their evidence, and writes the
next.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from refinery.contract.conversation import ChatPair, ChatRow
from refinery.contract.formats import SEARCH_ACTIONS
from refinery.contract.path_format import PathFormat, path_format
from refinery.contract.records import JudgeLabel, Preference, RelevanceLabel, Step, Trajectory
from refinery.contract.segments import Segment, encode, encode_segment, encode_text
from refinery.contract.tokenizer import Tokenizer
from refinery.errors import RecordError, UnwritableError
from refinery.llms.base import LLM, Context
from refinery.llms.build import ModelConfig, build_llm, llm_over
from refinery.metrics.classification import accuracy, auc, expected_calibration_error, label_f1
from refinery.metrics.squad import exact_match
from refinery.runtime.concurrency.background_loop import run_anywhere
from refinery.tasks import relevance
from refinery.tasks.base import ChatTask, Judge, PairTask, TrajectoryTask, Writer
from train.recipe import TrainRecipe
from train.rows.data import held_out_records, read_rows, row_segments, row_steps
from train.trainers.held_out_answers import HeldOutAnswer, write_held_out

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

# The limit of a reply's tokens, and the margin over the right reply if that is longer, for example for its end.
_MAX_NEW_TOKENS, _MORE_THAN_RIGHT = 128, 16
# Rows answered at once: each keeps its context's keys and values.
_IN_FLIGHT = 64
_RIGHT_FROM = 0.5  # the score from which a row counts as right, in `held_out.jsonl`

Scored = tuple[dict[str, float | None], list[HeldOutAnswer]]


def evaluate(recipe: TrainRecipe) -> dict[str, Any]:
    """The scores of the finished checkpoint on all validation rows that fit, and their number; `held_out.jsonl` keeps its answers."""
    llm = build_llm(ModelConfig(base=str(recipe.output_dir)))
    records = [record for rows in read_rows(recipe.validation, recipe) for record in rows]
    fitting = _fitting(records, recipe, llm.tokenizer)
    left_out = {"validation_rows_left_out": len(records) - len(fitting)} if len(fitting) < len(records) else {}
    scores, answers = answer_and_score(llm, fitting, recipe)
    write_held_out(recipe.output_dir, answers)
    return {"validation_rows": len(fitting), **left_out, **scores}


def evaluate_model(model: "PreTrainedModel | PeftModel", tokenizer: Tokenizer, recipe: TrainRecipe) -> dict[str, float]:
    """The scores of a model in training on its first validation rows. Leaves the model as it was, except for its mode."""
    from refinery.llms.engine.huggingface import HuggingFaceLLM

    llm = llm_over(model, tokenizer, recipe.family)
    try:
        return score(llm, _fitting(held_out_records(recipe), recipe, tokenizer), recipe)
    finally:
        if isinstance(llm, HuggingFaceLLM):
            llm.release()


def relevance_shares(llm: LLM, records: Sequence[RelevanceLabel]) -> list[float]:
    """The probability that a judge gives each passage of being relevant."""
    return run_anywhere(_positive_shares(llm, records, relevance.TASK))


def score(llm: LLM, records: Sequence[Any], recipe: TrainRecipe) -> dict[str, float]:
    """The task's `scores`, without those that are undefined for the rows (such as AUC for rows of one label)."""
    return answer_and_score(llm, records, recipe)[0]


def answer_and_score(llm: LLM, records: Sequence[Any], recipe: TrainRecipe) -> tuple[dict[str, float], list[HeldOutAnswer]]:
    """The scores, and the model's answer to each row (to each step of a trajectory)."""
    scorer = next(scorer for kind, scorer in _SCORERS.items() if isinstance(recipe.learned, kind))
    scores, answers = run_anywhere(scorer(llm, records, recipe))
    return {name: value for name, value in scores.items() if value is not None}, answers


def _fitting(records: Sequence[Any], recipe: TrainRecipe, tokenizer: Tokenizer) -> list[Any]:
    """The rows that fit. For a causal model, those that it could be trained on: not too long, with a target that it can write. An encoder
    shortens long rows, and T5 has no limit.

    Raises RecordError when none is left.
    """
    if recipe.family != "causal":
        return list(records)

    def fits(record: Any) -> bool:
        paths = (record.chosen, record.rejected) if isinstance(record, Preference | ChatPair) else (record,)
        try:
            return all(len(encode(row_segments(path, recipe, tokenizer), tokenizer).input_ids) <= recipe.max_length for path in paths)
        except UnwritableError:
            return False

    fitting = [record for record in records if fits(record)]
    if not fitting:
        raise RecordError(
            f"{recipe.validation[0]}: every row is longer than max_length {recipe.max_length}, or cannot be written. Raise it."
        )
    return fitting


async def _score_judgements(llm: LLM, records: Sequence[JudgeLabel], recipe: TrainRecipe) -> Scored:
    """Accuracy; F1 and AUC of the positive label; ECE of the chosen label's probability."""
    task = cast("Judge[Any]", recipe.learned)
    shares = await _positive_shares(llm, records, task)
    labels = [label.strip() for label in task.labels]
    predicted = [labels[share >= 0.5] for share in shares]
    gold = [record.label for record in records]
    right = [p == g for p, g in zip(predicted, gold, strict=True)]
    sure = [max(share, 1 - share) for share in shares]
    scores = {
        "accuracy": accuracy(predicted, gold),
        "f1": label_f1(predicted, gold, positive=labels[1]),
        "auc": auc(shares, [label == labels[1] for label in gold]),
        "ece": expected_calibration_error(sure, right),
    }
    given = zip(records, predicted, right, sure, strict=True)
    return scores, [_answer(row, row.label, p, r, probability=s, read=task.prompt(row)) for row, p, r, s in given]


def _answer(record: Any, gold: str, predicted: str, right: bool, *, probability: float | None = None, read: str = "") -> HeldOutAnswer:
    asked = {"question_id": record.question_id, "question": record.question, "read": str(read)}
    return HeldOutAnswer(**asked, gold=gold, predicted=predicted, right=right, probability=probability)


async def _positive_shares(llm: LLM, records: Sequence[JudgeLabel], task: Judge[Any]) -> list[float]:
    """The probability of the positive label, record by record."""

    async def judge(record: JudgeLabel) -> float:
        return (await llm.context(task.prompt(record)).label_probs(task.labels))[task.labels[1]]

    return await _all(judge, records)


async def _score_replies(llm: LLM, records: Sequence[Any], recipe: TrainRecipe) -> Scored:
    """The task's own scores for the replies."""
    task = cast("Writer[Any]", recipe.learned)

    async def reply(record: Any) -> str:
        context = llm.context(task.prompt(record))
        right = len(encode_text(task.reply(record), llm.tokenizer))
        return (await context.generate(max_new_tokens=_room(llm, context, right))).text

    replies = await _all(reply, records)
    first = task.scores[0]
    answers = [
        _answer(record, task.reply(record).strip(), text, task.score([text], [record])[first] >= _RIGHT_FROM, read=task.prompt(record))
        for record, text in zip(records, replies, strict=True)
    ]
    return {**task.score(replies, records)}, answers


async def _score_preferences(llm: LLM, records: Sequence[Preference | ChatPair], recipe: TrainRecipe) -> Scored:
    """Share of pairs whose chosen path is more probable than the rejected one, by the sum over the tokens that a model writes."""

    async def logprob(path: Trajectory | ChatRow) -> float:
        total, context = 0.0, None
        for before, step in row_steps(path, recipe, llm.tokenizer):
            context = context.extend(before) if context else llm.context(before)
            total += sum(await context.score(step))
            context = context.extend(step)
        return total

    chosen = await _all(logprob, [record.chosen for record in records])
    rejected = await _all(logprob, [record.rejected for record in records])
    right = [mine > theirs for mine, theirs in zip(chosen, rejected, strict=True)]
    named = zip(records, right, strict=True)
    return {"accuracy": sum(right) / len(records)}, [
        _answer(row, "chosen", "chosen" if is_right else "rejected", is_right) for row, is_right in named
    ]


async def _score_chats(llm: LLM, records: Sequence[ChatRow], recipe: TrainRecipe) -> Scored:
    """Share of conversations whose last turn is written word for word, apart from white space around it."""

    async def write(record: ChatRow) -> tuple[str, str]:
        *earlier, (before, turn) = row_steps(record, recipe, llm.tokenizer)
        read = [segment for pair in earlier for part in pair for segment in part] + before
        right = [token for segment in turn for token in encode_segment(segment, llm.tokenizer)]
        context = llm.context(read)
        reply = await context.generate(max_new_tokens=_room(llm, context, len(right)))
        return reply.text, llm.tokenizer.decode(right, skip_special_tokens=True, clean_up_tokenization_spaces=False).strip()

    written = await _all(write, records)
    right = [said == gold for said, gold in written]
    answers = [_answer(record, gold, said, is_right) for record, (said, gold), is_right in zip(records, written, right, strict=True)]
    return {"accuracy": sum(right) / len(right)}, answers


async def _score_steps(llm: LLM, records: Sequence[Trajectory], recipe: TrainRecipe) -> Scored:
    """Share of replies that are one whole step, F1 of the decision to answer, exact match of queries and of answers."""

    written_as = path_format(llm.tokenizer, recipe.format)

    async def walk(record: Trajectory) -> list[tuple[Step, Step | None]]:
        pairs: list[tuple[Step, Step | None]] = []
        context = None
        for before, step in row_steps(record, recipe, llm.tokenizer):
            context = context.extend(before) if context else llm.context(before)
            right = sum(len(encode_segment(segment, llm.tokenizer)) for segment in step)
            reply = await context.generate(max_new_tokens=_room(llm, context, right), stop=written_as.ends)
            pairs.append((_step_of(step, written_as, llm.tokenizer), _parsed(reply.token_ids, written_as)))
            context = context.extend(step)
        return pairs

    walked = await _all(walk, records)
    pairs = [pair for steps in walked for pair in steps]
    written = [step.action if step else "" for _, step in pairs]
    queries = [pair for pair in pairs if pair[0].action in SEARCH_ACTIONS]
    answers = [pair for pair in pairs if pair[0].action == "answer"]
    scores = {
        "action_validity": sum(step is not None for _, step in pairs) / len(pairs),
        "stop_f1": label_f1(written, [gold.action for gold, _ in pairs], positive="answer"),
        "query_exact_match": _exact(queries, SEARCH_ACTIONS),
        "answer_exact_match": _exact(answers, ("answer",)),
    }
    shown = [
        _answer(
            record, _said(gold), _said(step), step is not None and step.action == gold.action and exact_match(step.text, [gold.text]) == 1
        )
        for record, steps in zip(records, walked, strict=True)
        for gold, step in steps
    ]
    return scores, shown


def _said(step: Step | None) -> str:
    return "no whole step" if step is None else f"{step.action}: {step.text}"


def _room(llm: LLM, context: Context, right: int) -> int:
    """The number of tokens that the model may write: enough for a right reply of `right` tokens, within its positions."""
    most, limit = max(_MAX_NEW_TOKENS, right + _MORE_THAN_RIGHT), llm.context_limit
    return most if limit is None else min(most, limit - len(context.token_ids))


def _step_of(segments: Sequence[Segment], written_as: PathFormat, tokenizer: Tokenizer) -> Step:
    return written_as.parse_step([token for segment in segments for token in encode_segment(segment, tokenizer)])


def _parsed(token_ids: Sequence[int], written_as: PathFormat) -> Step | None:
    """The step that the tokens form, or None if they do not form exactly one."""
    try:
        return written_as.parse_step(token_ids)
    except RecordError:
        return None


def _exact(pairs: Sequence[tuple[Step, Step | None]], actions: Sequence[str]) -> float | None:
    """Share of replies that take one of the actions and have the right text (SQuAD's normalization); None without rows."""
    hits = [step is not None and step.action in actions and exact_match(step.text, [gold.text]) for gold, step in pairs]
    return sum(hits) / len(hits) if hits else None


async def _all(ask: Any, records: Sequence[Any]) -> list[Any]:
    """The results of `ask` for every record, in order, with a few running at a time."""
    places = asyncio.Semaphore(_IN_FLIGHT)

    async def one(record: Any) -> Any:
        async with places:
            return await ask(record)

    return await asyncio.gather(*(one(record) for record in records))


_SCORERS = {
    Judge: _score_judgements,
    Writer: _score_replies,
    TrajectoryTask: _score_steps,
    PairTask: _score_preferences,
    ChatTask: _score_chats,
}
