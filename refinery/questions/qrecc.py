"""QReCC as released (`qrecc_test.json`), and the ground truth of SCAI-QReCC (`scai_ground_truth.json`).

The release has each question as the user asked it, the dialogue before it (`history`) and its self-contained rewrite, which becomes
its only reading (`disambiguations`). SCAI's file lacks the user's words and the dialogue, so the rewrite is the question and there
is no history.
"""

from pydantic import AliasChoices, Field

from refinery.contract.records import Disambiguation, Question
from refinery.questions.base import DatasetRow, reader_of


class _Row(DatasetRow):
    Conversation_no: int
    Turn_no: int
    Context: list[str] = []
    Question: str | None = None
    rewrite: str = Field(validation_alias=AliasChoices("Rewrite", "Truth_rewrite"))
    answer: str = Field(default="", validation_alias=AliasChoices("Answer", "Truth_answer"))


def _to_question(row: _Row) -> Question:
    """Ids are SCAI's, `<conversation>_<turn>`. Some turns have no answer."""
    return Question(
        id=f"{row.Conversation_no}_{row.Turn_no}",
        text=(row.Question or row.rewrite).strip(),
        answers=[row.answer] if row.answer.strip() else [],
        history=row.Context or None,
        disambiguations=[Disambiguation(text=row.rewrite.strip())] if row.Question else None,
        dataset="qrecc",
    )


READER = reader_of(_Row, _to_question, split="test", repositories=("svakulenk0/qrecc",))
