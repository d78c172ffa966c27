"""A record as what a model reads and what it should write: one layout for training and for the guard of length."""

from refinery.contract.records import Decomposition, PromptCompletion
from refinery.tasks.sub_models import JudgeLabel, decomposition_prompt, judge_prompt, render_sub_questions

PromptedRecord = JudgeLabel | Decomposition | PromptCompletion


def prompt_and_reply(record: PromptedRecord) -> tuple[str, str]:
    """The prompt that inference will render, and the reply from the space or line break on that sets it off; the end is not in it."""
    if isinstance(record, JudgeLabel):
        return judge_prompt(record), f" {record.label}"
    if isinstance(record, Decomposition):
        return decomposition_prompt(record.question), render_sub_questions(record.sub_questions)
    return record.prompt, record.reply
