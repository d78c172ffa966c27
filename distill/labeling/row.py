"""Label one row: by the teacher, or where the recipe says so by several samples, a stronger teacher, and a judge.

1. The task labels the row `samples` times. Labels are chosen by majority, texts as `best_of` says.
2. If too few samples agree, or the teacher's replies got the row rejected, the stronger teacher of `escalate` labels it.
3. The judge checks the result.
"""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel

from distill.label_context import LabelContext
from distill.label_task import LabelTask
from distill.teacher.judge import CHECK, CHOOSE, preferred, right_records
from distill.teacher.partial_labels import LabeledParts, parts_of, settled, unlabeled_of
from distill.teacher.teacher import AnyTeacher, RejectedRow, RequestLog
from distill.teacher.vote import Chosen, Sample, chosen_text, have_labels, pairs_of, record_of, vote
from refinery.contract.records import JudgeLabel, Provenance, Record
from refinery.prompts.render import prompt_hash

T = TypeVar("T", bound=BaseModel)

# Rollouts of a sample are numbered from this many times its own number, so a task may have rollouts too.
_ROLLOUTS_PER_SAMPLE = 1_000


def row_labeler(task: LabelTask[Any], context: LabelContext) -> Callable[[Any], Coroutine[Any, Any, Sequence[Record]]]:
    """A function that labels a row. It raises RejectedRow for a row that cannot be labeled."""
    recipe = context.recipe
    if recipe.samples == 1 and not (context.strong or context.judge):
        return lambda row: task.label(row, context)
    return _RowLabeler(task, context).label


class _RowLabeler:
    def __init__(self, task: LabelTask[Any], context: LabelContext) -> None:
        self._task, self._context, self._recipe = task, context, context.recipe

    async def label(self, row: Any) -> Sequence[Record]:
        """The row's records, with everyone who took part in their provenance."""
        asked = RequestLog()  # of the judge
        outcomes = await settled(self._sample(row, self._context.teacher, number) for number in range(self._recipe.samples))
        samples = [outcome for outcome in outcomes if isinstance(outcome, Sample)]
        labeled = [sample for sample in samples if sample.rejected is None]
        chosen = await self._chosen(row, labeled, asked) if labeled else None
        self._context.tally.agreement.add("samples", pairs_of(labeled))
        if self._is_unsure(chosen, samples):
            strong = await self._sample(row, self._context.strong, 0)
            chosen = self._replaced(chosen, strong)
            samples = [*samples, strong]
        if chosen is None:
            raise next((error for error in _rejections(samples) if error.reason == "no_reply"), _rejections(samples)[-1])
        kept = await self._kept(row, chosen.records, asked)
        signed = [_signed(chosen, number, samples, asked, self._prompts(chosen)) for number in kept]
        return LabeledParts(signed, [parts_of(chosen.records)[number] for number in kept], unlabeled_of(chosen.records))

    async def _sample(self, row: Any, teacher: AnyTeacher | None, number: int) -> Sample:
        sampled = _SampledTeacher(teacher, number) if teacher else None
        logs = sampled.logs if sampled else []
        try:
            return Sample(await self._task.label(row, replace(self._context, teacher=sampled)), None, logs)
        except RejectedRow as error:
            return Sample([], error, logs)

    async def _chosen(self, row: Any, samples: Sequence[Sample], asked: RequestLog) -> Chosen:
        if self._chooses_by_judge(samples[0].records):
            assert self._context.judge is not None  # the recipe was checked
            return chosen_text(samples, await preferred(self._context.judge, row, samples, asked))
        return vote(samples)

    def _chooses_by_judge(self, records: Sequence[Record]) -> bool:
        return self._recipe.best_of == "judge" and not isinstance(records[0] if records else None, JudgeLabel)

    def _is_unsure(self, chosen: Chosen | None, samples: Sequence[Sample]) -> bool:
        """Whether the strong teacher should label the row. One that was rejected before any request would be rejected again."""
        if self._recipe.escalate is None:
            return False
        if chosen is None:
            return any(sample.asked for sample in samples)
        if unlabeled_of(chosen.records) or self._is_improbable(chosen):
            return True
        return min(chosen.votes, default=len(samples)) / len(samples) < self._recipe.escalate.min_agreement

    def _is_improbable(self, chosen: Chosen) -> bool:
        """Whether a label has less than the wanted probability. Raises RecipeError if the endpoint does not tell probabilities."""
        escalate = self._recipe.escalate
        if escalate is None or escalate.min_probability is None or not chosen.records:
            return False
        probabilities = [log.label_probability for sample in chosen.samples for log in sample.asked]
        if None in probabilities or not isinstance(chosen.records[0], JudgeLabel):
            why = (
                "the replies have no labels" if not isinstance(chosen.records[0], JudgeLabel) else "the endpoint sends no log-probabilities"
            )
            raise escalate.fault("min_probability", f"{why}. Leave it out, and use `samples` instead.")
        return min((one for one in probabilities if one is not None), default=1.0) < escalate.min_probability

    def _replaced(self, chosen: Chosen | None, strong: Sample) -> Chosen | None:
        """The strong teacher's result, whatever the first one's was; None if it is rejected."""
        self._context.tally.counts["questions_escalated"] += 1
        if strong.rejected is not None:
            return None
        if chosen is not None:
            self._context.tally.agreement.add("teacher and strong", pairs_of([Sample(chosen.records), strong]))
        return Chosen(strong.records, [strong] * len(strong.records))

    async def _kept(self, row: Any, records: Sequence[Record], asked: RequestLog) -> Sequence[int]:
        """The numbers of the records that the judge does not find wrong."""
        if self._context.judge is None or not records:
            return range(len(records))
        right = await right_records(self._context.judge, row, records, asked)
        self._context.tally.counts["rows_judged_bad"] += len(records) - len(right)
        return right

    def _prompts(self, chosen: Chosen) -> dict[str, str]:
        """The judge's prompts and their hashes."""
        names = [CHECK] * (self._context.judge is not None) + [CHOOSE] * (len(chosen.votes) > 0 and self._chooses_by_judge(chosen.records))
        return {name: prompt_hash(name) for name in names}


class _SampledTeacher:
    """A teacher whose replies are those of one sample; `logs` has its requests."""

    def __init__(self, teacher: AnyTeacher, number: int) -> None:
        self._teacher, self._first_rollout = teacher, number * _ROLLOUTS_PER_SAMPLE
        self.logs: list[RequestLog] = []

    async def ask(self, prompt: str, schema: type[T], asked: RequestLog, *, rollout: int = 0) -> T:
        """See `Teacher.ask`."""
        return await self._teacher.ask(prompt, schema, self._logged(asked), rollout=self._first_rollout + rollout)

    async def text(self, prompt: str, asked: RequestLog, *, rollout: int = 0) -> str:
        """See `Teacher.text`."""
        return await self._teacher.text(prompt, self._logged(asked), rollout=self._first_rollout + rollout)

    def _logged(self, asked: RequestLog) -> RequestLog:
        if not any(log is asked for log in self.logs):
            self.logs.append(asked)
        return asked


def _rejections(samples: Sequence[Sample]) -> list[RejectedRow]:
    return [sample.rejected for sample in samples if sample.rejected is not None]


def _signed(chosen: Chosen, number: int, samples: Sequence[Sample], judged: RequestLog, prompts: dict[str, str]) -> Record:
    """A record whose provenance has the requests of all samples and of the judge."""
    record = chosen.records[number]
    own: Provenance | None = getattr(record, "provenance", None)
    if own is None:  # a written question
        return record
    part = parts_of(chosen.records)[number]
    others = [one for sample in samples if sample is not chosen.samples[number] for one in _requests(sample, part, samples)]
    pooled = [*others, own, judged]
    update = {
        "prompts": own.prompts | prompts,
        "made_by": {role: model for one in pooled for role, model in (one.made_by or {}).items()} or None,
        "request_ids": [request_id for one in pooled for request_id in one.request_ids],
        "num_prompt_tokens": sum(one.num_prompt_tokens for one in pooled),
        "num_completion_tokens": sum(one.num_completion_tokens for one in pooled),
        "cost_usd": _sum([one.cost_usd for one in pooled if one.request_ids]),
        "votes": chosen.votes[number] if chosen.votes and len(samples) > 1 else None,
        "samples": len(samples) if chosen.votes and len(samples) > 1 else None,
    }
    return record.model_copy(update={"provenance": own.model_copy(update=update)})


def _requests(sample: Sample, part: str, samples: Sequence[Sample]) -> Sequence[RequestLog | Provenance]:
    """What a sample asked about a part of the row; where it has no record of it, or samples have different records, all that it asked."""
    same_records = sample.records and have_labels([one for one in samples if one.records])
    own: Provenance | None = getattr(record_of(sample, part), "provenance", None) if same_records else None
    return [own] if own else sample.asked


def _sum(costs: Sequence[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known and len(known) == len(costs) else None
