"""GPT4-Alpaca (`alpaca_gpt4_data.json`): Alpaca's instructions, many with an input, with the replies of GPT-4.

The input follows its instruction after an empty line.
"""

from refinery.contract.records import Question
from refinery.questions.base import DatasetRow, reader_of


class AlpacaRow(DatasetRow):
    """A row in Alpaca's layout, which WizardLM's also has."""

    instruction: str
    input: str = ""
    output: str


def to_question(row: AlpacaRow, dataset: str) -> Question:
    """The instruction and its input as one text. A row without a reply has no answer."""
    asked = [part.strip() for part in (row.instruction, row.input) if part.strip()]
    return Question(id="", text="\n\n".join(asked), answers=[row.output.strip()] if row.output.strip() else [], dataset=dataset)


READER = reader_of(
    AlpacaRow, lambda row: to_question(row, "gpt4_alpaca"), repositories=("vicgalle/alpaca-gpt4", "llm-wizard/alpaca-gpt4-data")
)
