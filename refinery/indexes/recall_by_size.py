"""Recall by passage size: how much of the text that answers a question is found when the documents are cut in several ways.

Each way of cutting has its own ids, so texts are compared: the sentences of a question's supporting passages, or its answers. Larger
passages hold more text, so recall is measured both in the first k hits and in the first N words of all hits.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from refinery.contract.records import Passage, Question, write_records
from refinery.errors import RecordError
from refinery.passages.corpus import searched_text
from refinery.passages.documents.read import document_bytes, document_files, document_name
from refinery.passages.documents.reader_process import read_document
from refinery.passages.settings import SplitSettings
from refinery.passages.split import split_document
from refinery.retrievers.base import Hit, RetrieverConfig
from refinery.retrievers.search.build import build_retriever
from refinery.text import normalize_answer
from refinery.unspaced import count_words, letters_apart, sentences

_FEWEST_WORDS = 10  # of a passage on average; determines how many hits fill a number of words
_NO_TEXT = frozenset({"yes", "no"})  # answers that no passage quotes


@dataclass(frozen=True, slots=True)
class SoughtQuestion:
    """A question and the normalized texts that answer it: for each paragraph its sentences, each as a list of equally good texts."""

    question: Question
    paragraphs: list[list[list[str]]]


@dataclass(frozen=True, slots=True)
class Cutoffs:
    """The cutoffs for recall: numbers of hits, and numbers of words in the hits."""

    hits: Sequence[int]
    words: Sequence[int]

    @property
    def most_hits(self) -> int:
        """The number of hits to request."""
        return max(*self.hits, *(words // _FEWEST_WORDS for words in self.words))


@dataclass(frozen=True, slots=True)
class SizeRecall:
    """The recall of one way of cutting, by number of hits and by number of words."""

    settings: SplitSettings
    num_passages: int
    by_hits: dict[int, float]
    by_words: dict[int, float]


def sought_in_supporting(questions: Sequence[Question], passages: Mapping[str, Passage]) -> list[SoughtQuestion]:
    """The questions whose supporting passages are in `passages` or among their own, with the sentences of these."""
    return [SoughtQuestion(question, paragraphs) for question in questions if (paragraphs := _supporting(question, passages))]


def sought_answers(questions: Sequence[Question]) -> list[SoughtQuestion]:
    """The questions with an answer that a passage can quote. Any of its spellings counts."""
    found = ((question, _quotable(question)) for question in questions if not question.choices)
    return [SoughtQuestion(question, [[answers]]) for question, answers in found if answers]


def measure_sizes(
    folder: Path, config: RetrieverConfig, sought: Sequence[SoughtQuestion], sizes: Sequence[SplitSettings], cutoffs: Cutoffs
) -> Iterator[SizeRecall]:
    """The recall of each way to cut the documents of `folder`. Raises RecordError for documents that cannot be read."""
    documents = {document_name(path, folder): read_document(document_bytes(path), path) for path in document_files(folder)}
    for settings in sizes:
        passages = [passage for name, document in documents.items() for passage in split_document(document, name, settings)]
        if not passages:
            raise RecordError(f"{folder}: its documents hold no text. Name a folder of documents with text.")
        hits = asyncio.run(_search(passages, config, [one.question for one in sought], cutoffs.most_hits))
        found = list(zip(sought, map(_normalized, hits), hits, strict=True))
        yield SizeRecall(
            settings,
            len(passages),
            {k: fmean(_share(one, texts[:k]) for one, texts, _ in found) for k in cutoffs.hits},
            {words: fmean(_share(one, texts[: _fit(of, words)]) for one, texts, of in found) for words in cutoffs.words},
        )


async def _search(passages: Sequence[Passage], config: RetrieverConfig, questions: Sequence[Question], k: int) -> list[list[Hit]]:
    with TemporaryDirectory() as folder:
        corpus = Path(folder) / "passages.jsonl"
        write_records(corpus, passages)
        retriever = build_retriever(config.model_copy(update={"passages": corpus, "index": None, "cache": None}))
        return await asyncio.gather(*(retriever.search(question.text, k=k, question=question) for question in questions))


def _supporting(question: Question, passages: Mapping[str, Passage]) -> list[list[list[str]]]:
    own = {passage.id: passage for passage in question.passages or []}
    texts = [found.text for passage_id in question.supporting or [] if (found := passages.get(passage_id) or own.get(passage_id))]
    if len(texts) < len(question.supporting or []):
        return []
    paragraphs = ([[words] for part in sentences(text) if (words := _framed(normalize_answer(part))).strip()] for text in texts)
    return [paragraph for paragraph in paragraphs if paragraph]


def _quotable(question: Question) -> list[str]:
    answers = {normalize_answer(answer) for answer in question.answers}
    return [_framed(answer) for answer in sorted(answers - _NO_TEXT) if answer]


def _normalized(hits: Sequence[Hit]) -> list[str]:
    return [_framed(normalize_answer(searched_text(hit.passage))) for hit in hits]


def _framed(normalized: str) -> str:
    """The text with one space before and after each word, so that only whole words match."""
    return f" {' '.join(letters_apart(normalized).split())} "


def _share(sought: SoughtQuestion, texts: Sequence[str]) -> float:
    """The mean over paragraphs of the fraction of sentences that one of the texts contains."""
    return fmean(
        fmean(any(wanted in text for wanted in sentence for text in texts) for sentence in paragraph) for paragraph in sought.paragraphs
    )


def _fit(hits: Sequence[Hit], most_words: int) -> int:
    """The number of first hits that together have at most this many words."""
    return sum(total <= most_words for total in accumulate(count_words(hit.passage.text) for hit in hits))
