"""Any decoder's traces as training data for a student that takes its model's place (what none of the four papers did).

Kept are the calls of questions that were answered right, and of those the calls that passed the method's own checks: a reply that the
decoder could use, all of whose citations hold; a search that found a supporting passage that was not found before. `form: steps` gives a
row per call, with the student's prompt and reply of refinery/prompts/replies.py; `form: trajectories` gives the searches and the answer as
one trajectory with control tokens, so that one generator learns the method's way through a question and RQ-RAG's decoder runs it. Of a tree
this is its likeliest path with a right answer, with the searches on that path alone.

The infer run must have kept its prompts (`keep_prompts: true`) for `form: steps`.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import Field

from distill.label_context import LabelContext
from distill.label_task import LabelTask
from distill.recipe import DistillRecipe
from distill.steps.tree_paths import AnswerMetric, likeliest
from distill.teacher.teacher import RejectedRow
from refinery.contract.records import Passage, PromptCompletion, Question, Step, Trajectory
from refinery.contract.trace import Prediction, TraceStep
from refinery.llms.served.json_reply import parse_json_reply
from refinery.metrics.registry import score_all
from refinery.prompts.replies import REPLIES, MainReply, student_prompt
from refinery.runtime.recipe import Recipe

# Notes of a decoder's own checks that a reply did not pass: infer/steps/ask.py's faults, and MIGRES' entailment check.
_FAILED = ("fault", "not_entailed")
_CHECK = "entailment"  # a call that checks the one before it, of which a student has no part


class Options(Recipe):
    """Which traces, and what is made of them."""

    metric: AnswerMetric = Field(
        default="em.squad", description="an answer counts as right from `min_score` on by this metric of refinery/metrics"
    )
    min_score: float = Field(default=1.0, gt=0, le=1)
    form: Literal["steps", "trajectories"] = "steps"
    searches_find: Literal["new_support", "anything"] = Field(
        default="new_support", description="what a search must find; questions without annotated support are not checked"
    )
    steps: list[str] | None = Field(default=None, description="only calls of these names in the trace; all by default")
    explanations: bool = Field(
        default=False,
        description="MIGRES' student writes the teacher's explanation before its answer, as in Hsieh et al. 2023 (distilling step by step):"
        " more tokens, and a small model answers better for what it has written",
    )
    most_per_group: int | None = Field(
        default=None,
        description="rows of one step (of trajectories: all) and one number of calls at most, to even out actions and lengths",
        ge=1,
    )


def needs(options: Options) -> tuple[str, ...]:
    """Parts of the recipe that must be there."""
    return ("runs",)


async def label(question: Question, context: LabelContext) -> Sequence[PromptCompletion | Trajectory]:
    """The question's rows from every run that answered it right. Raises RejectedRow when none did, or no call passed the checks."""
    options = context.options
    form = _exchanges if options.form == "steps" else _trajectories
    right = [prediction for prediction in context.predictions.of(question) if _right_answers(prediction, question, options)]
    if not right:
        raise RejectedRow("wrong_answer", f"no run answers question {question.id} right by {options.metric}")
    rows = [row for prediction in right for row in form(prediction, question, context)]
    if not rows:
        raise RejectedRow("failed_checks", f"no call of question {question.id} passed the method's own checks")
    return rows


def _right_answers(prediction: Prediction, question: Question, options: Options) -> list[str]:
    """Those of its answers that are right: of a tree that becomes a trajectory any path's may be, whichever the decoder selected."""
    is_tree = options.form == "trajectories" and prediction.paths
    answers = [path.answer or "" for path in prediction.paths] if is_tree else [prediction.answer]
    scores = score_all([options.metric], answers, [question] * len(answers))[options.metric]
    return [answer for answer, score in zip(answers, scores, strict=True) if score >= options.min_score]


def _exchanges(prediction: Prediction, question: Question, context: LabelContext) -> Iterator[PromptCompletion]:
    """A row per call, while its group is not full."""
    first, calls = _calls(prediction, context.recipe)
    found = _found(first)
    for step, after in calls:
        wanted = context.options.steps is None or step.name in context.options.steps
        passed = wanted and _passes(step, after, found, question, context.options)
        found |= _found(after)
        if passed and (reply := _plain_reply(step, context.options)) is not None and context.take_quota(f"{step.name}, {len(calls)} calls"):
            assert step.prompt is not None
            yield PromptCompletion(
                question_id=question.id,
                question=question.text,
                step=step.name,
                prompt=student_prompt(step.prompt.name, **step.prompt.values),
                reply=reply,
                provenance=context.provenance(),
            )


def _calls(prediction: Prediction, recipe: DistillRecipe) -> tuple[list[TraceStep], list[tuple[TraceStep, list[TraceStep]]]]:
    """What the trace notes before the first call, and every call with what it notes until the next one.

    Raises RecipeError where no call kept its prompt.
    """
    starts = [number for number, step in enumerate(prediction.trace) if step.prompt is not None and step.name != _CHECK]
    if not starts:
        raise recipe.fault("runs", "the traces hold no prompts. Decode with `keep_prompts: true`, by a decoder that prompts.")
    ends = [*starts[1:], len(prediction.trace)]
    calls = [(prediction.trace[start], prediction.trace[start + 1 : end]) for start, end in zip(starts, ends, strict=True)]
    return prediction.trace[: starts[0]], calls


def _passes(step: TraceStep, after: Sequence[TraceStep], found: set[str], question: Question, options: Options) -> bool:
    """Whether nothing that the decoder checked failed, and a search that the call led to found what it should."""
    if any(noted.name in _FAILED for noted in after):
        return False
    searched = any(noted.name == "retrieve" for noted in after)
    return not searched or _is_useful(_found(after), found, question, options)


def _is_useful(new: set[str], found: set[str], question: Question, options: Options) -> bool:
    if options.searches_find == "anything" or question.supporting is None:
        return bool(new)
    return bool((new - found).intersection(question.supporting))


def _found(steps: Sequence[TraceStep]) -> set[str]:
    return {passage.id for step in steps if step.name == "retrieve" for passage in step.passages or []}


def _plain_reply(step: TraceStep, options: Options) -> str | None:
    """What the student should write; None for JSON that the decoder could not read either."""
    assert step.prompt is not None
    schema, text = REPLIES.get(step.prompt.name), step.text or ""
    if schema is None:
        return f" {text.strip()}" if text.strip() else None
    try:
        reply = parse_json_reply(text, schema)
    except ValueError:
        return None
    if isinstance(reply, MainReply) and not options.explanations:
        reply = reply.model_copy(update={"explanation": None})
    return reply.plain()


def _trajectories(prediction: Prediction, question: Question, context: LabelContext) -> Iterator[Trajectory]:
    """The searches that passed, each with what it found, and the answer."""
    found: set[str] = set()
    kept: list[Step] = []
    *searches, answer = _right_path(prediction, question, context.options)
    for step in searches:
        new = {passage.id for passage in step.passages}
        if _is_useful(new, found, question, context.options):
            kept.append(step if prediction.paths else step.model_copy(update={"action": "decompose" if kept else "rewrite"}))
        found |= new
    if context.take_quota(f"{len(kept)} searches"):
        yield Trajectory(question_id=question.id, question=question.text, steps=[*kept, answer], provenance=context.provenance())


def _right_path(prediction: Prediction, question: Question, options: Options) -> list[Step]:
    """What led to the right answer: of a tree the path that its generator finds likeliest, and of other decoders all searches in order."""
    if prediction.paths:
        right = set(_right_answers(prediction, question, options))
        return likeliest((path for path in prediction.paths if path.answer in right), id)[0].steps
    searched = [step for step in prediction.trace if step.name == "retrieve"]
    return [
        *(
            Step(
                action="rewrite",
                text=step.question,
                passages=[Passage(id=p.id, title=p.title, text=p.text) for p in step.passages or []],
            )
            for step in searched
        ),
        Step(action="answer", text=prediction.answer),
    ]


LABEL_TASK = LabelTask(label, Options, needs)
