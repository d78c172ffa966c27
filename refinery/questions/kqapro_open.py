"""KQA Pro without its choices, for exact match with the answer's text (re-thinking Sec. 4.4)."""

from refinery.questions.base import reader_of
from refinery.questions.kqapro import KqaProRow, open_question

READER = reader_of(KqaProRow, open_question)
