"""The rows in flight: as many workers as rows may be worked on at once, and what makes them stop before the last row."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from distill.label_context import LabelContext
from distill.label_task import LabelTask
from distill.output.rows import InOrder, LabelWriter, Outcome
from distill.teacher.budget import BudgetExhausted
from distill.teacher.teacher import RejectedRow, Teacher
from refinery.errors import LLMError
from refinery.runtime.progress import Progress
from refinery.runtime.together import together

# A slow question holds back the writing of those behind it, and not their work, until this many times `rows_in_flight` are done.
_HELD_BACK = 16
# Rows that need no waiting give way now and then, so that replies and the progress line get their turn.
_ROWS_PER_TURN = 64


class TooManyRejected(LLMError):
    """More rows are rejected than `max_failure_share` allows, whatever becomes of the rest."""


async def label_all(
    rows: Iterator[Any],
    total: int,
    task: LabelTask[Any],
    context: LabelContext,
    writer: LabelWriter,
    teachers: Sequence[Teacher],
    lasting: Mapping[str, RejectedRow],
) -> None:
    """Label every row and hand it to `writer`. `lasting` are rejections by row id that are known without asking.

    Raises BudgetExhausted and TooManyRejected once the requests that are out have come to their end: what is paid for is kept.
    """
    work = _Work(task, context, teachers, lasting, context.recipe.max_failure_share * total)
    order = InOrder(writer.write, window=context.recipe.rows_in_flight * _HELD_BACK)
    numbered = enumerate(rows)
    with Progress(f"distill {context.recipe.task}", total=total, beside=lambda: _status(writer, teachers, total)) as progress:
        try:
            await together(_worker(numbered, order, work, progress) for _ in range(min(context.recipe.rows_in_flight, total)))
        finally:
            order.flush()
    if work.stopped_by:
        raise _too_many_rejected(context, writer, total) if isinstance(work.stopped_by, TooManyRejected) else work.stopped_by


async def _worker(numbered: Iterator[tuple[int, Any]], order: InOrder, work: "_Work", progress: Progress) -> None:
    """Take a row, label it, and take the next, until there is none or the run stops; rows begun before that come to their end."""
    for number, row in numbered:  # shared: each row goes to one worker
        await order.room(number)
        outcome = None if work.stopped_by else await work.outcome(row)
        if outcome is not None:
            order.put(number, row, outcome)
            progress.advance()
        if work.stopped_by:
            order.let_pass()
            return
        if number % _ROWS_PER_TURN == 0:
            await asyncio.sleep(0)


class _Work:
    """What becomes of a row, and whether another is begun: `stopped_by` says why not."""

    def __init__(
        self,
        task: LabelTask[Any],
        context: LabelContext,
        teachers: Sequence[Teacher],
        lasting: Mapping[str, RejectedRow],
        most_rejected: float,
    ) -> None:
        self._task, self._bench, self._teachers = task, context, teachers
        self._lasting, self._most_rejected, self._num_rejected = lasting, most_rejected, 0
        self.stopped_by: LLMError | None = None

    async def outcome(self, row: Any) -> Outcome | None:
        """The row's labels or why it has none; None where the run stopped before it had either."""
        try:
            if row.id in self._lasting:
                raise self._lasting[row.id]
            return await self._task.label(row, self._bench)
        except RejectedRow as error:
            self._count_rejected()
            return error
        except (BudgetExhausted, TooManyRejected) as error:
            self.stopped_by = self.stopped_by or error
            return None

    def _count_rejected(self) -> None:
        self._num_rejected += 1
        if self._num_rejected > self._most_rejected and self.stopped_by is None:
            self.stopped_by = TooManyRejected("too many rows are rejected")
            for teacher in self._teachers:
                teacher.budget.stopped_by = self.stopped_by


def _too_many_rejected(context: LabelContext, writer: LabelWriter, total: int) -> TooManyRejected:
    """Counted once the last row that was in flight is written."""
    share, of_all = context.recipe.max_failure_share, f" of {total}" if writer.questions < total else ""
    return TooManyRejected(
        f"{context.recipe.output_dir}: {writer.num_rejected} of {writer.questions} rows were rejected, more than max_failure_share "
        f"{share} allows{of_all} ({_reasons(writer.rejected)}). The first: {'; '.join(writer.first_rejected)}. See failures.jsonl; the "
        "rows labelled so far are written. Mend the cause, or raise max_failure_share, and --resume: nothing is paid twice."
    )


def _reasons(rejected: Counter[str]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in rejected.most_common())


def _status(writer: LabelWriter, teachers: Sequence[Teacher], total: int) -> str:
    """The line beside the bar: calls, hits, retries, in flight, tokens, cost so far and projected, label balance."""
    parts = [f"rejected={writer.num_rejected}"] if writer.num_rejected else []
    for teacher in teachers:
        tokens = teacher.num_prompt_tokens + teacher.num_completion_tokens
        parts.append(f"calls={teacher.calls} hits={teacher.hits} retries={teacher.transport.retries}")
        parts.append(f"in_flight={teacher.transport.in_flight} tokens={tokens}")
        if (spent := teacher.budget.spent) is not None:
            projected = f" (about ${spent * total / writer.questions:.2f} in all)" if writer.questions else ""
            parts.append(f"${spent:.2f}{projected}")
    labelled = sum(writer.labels.values())
    return " ".join([*parts, *(f"{label}={count / labelled:.0%}" for label, count in sorted(writer.labels.items()))])
