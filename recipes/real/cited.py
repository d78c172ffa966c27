"""Ask a served recipe forty real questions, half of which its documents do not answer, and check every citation of its answers.

    python recipes/real/cited.py write runs/real/cited
    refinery serve recipes/real/cited.yaml --port 8100
    python recipes/real/cited.py ask runs/real/cited --server http://127.0.0.1:8100/v1

The questions are single hops of MuSiQue's annotated questions. The documents are those rows' paragraphs, without any that names the answer
of a question that they are not to answer.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from refinery.contract.records import Passage, Question, SubQuestion, read_records, write_records
from refinery.errors import RecordError
from refinery.questions.base import read_questions
from refinery.reporting.markdown import table
from refinery.runtime.run.command import guarded

_ROWS = [Path(__file__).parent / "data" / "musique" / f"{part}.jsonl" for part in ("train", "validation", "test")]
_CITATION = re.compile(r"\[(\d+)\]")
_HEAD = ["the documents", "questions", "right", "abstained", "citations", "by words", "resolved", "removed"]
_AT_ONCE = 8
_EACH = 20  # questions that the documents answer, and questions that they do not


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python recipes/real/cited.py", description="Check the citations of a served recipe.")
    parser.add_argument("action", choices=["write", "ask"])
    parser.add_argument("folder", type=Path, help="where passages.jsonl and questions.jsonl are")
    parser.add_argument("--server", default="http://127.0.0.1:8000/v1", help="base URL of `refinery serve`")
    arguments = parser.parse_args(argv)
    if arguments.action == "write":
        return guarded(lambda: write(arguments.folder), traceback=False)
    return guarded(lambda: print("\n".join(ask(arguments.folder, arguments.server))), traceback=False)


def write(folder: Path) -> None:
    """Write the documents and the questions; those without an answer in the documents have no `supporting` passage."""
    rows = list(read_questions(_ROWS, reader="musique"))
    hops = {hop.text: hop for row in rows for hop in row.decomposition or [] if not {"#", ">"} & set(hop.text)}
    silent = list(hops.values())[1::2][:_EACH]
    names = [str(hop.answer).casefold() for hop in silent]
    texts = {(passage.title, passage.text): passage for row in rows for passage in row.passages or []}
    kept = [passage for passage in texts.values() if not any(name in f"{passage.title} {passage.text}".casefold() for name in names)]
    ids = {passage.id for passage in kept}
    answered = [hop for hop in list(hops.values())[::2] if ids.issuperset(hop.supporting or [])][:_EACH]
    write_records(folder / "passages.jsonl", kept)
    write_records(folder / "questions.jsonl", [*(_question(hop, ids) for hop in answered), *(_question(hop, ids) for hop in silent)])


def _question(hop: SubQuestion, ids: set[str]) -> Question:
    found = [passage_id for passage_id in hop.supporting or [] if passage_id in ids]
    return Question(id=hop.text, text=hop.text, answers=[str(hop.answer)], supporting=found)


def ask(folder: Path, server: str) -> Iterator[str]:
    """The table: what became of the questions that have an answer in the documents, and of those that have none."""
    from openai import OpenAI

    client = OpenAI(base_url=server, api_key="none", timeout=7200)
    model = client.models.list().data[0].id
    documents = {passage.id: passage for passage in read_records(folder / "passages.jsonl", Passage)}

    def checked(question: Question) -> list[int]:
        reply = client.chat.completions.create(model=model, messages=[{"role": "user", "content": question.text}])
        said = str(reply.choices[0].message.content).partition("\n\n**Sources**")[0]
        print(f"{question.text}\n  {' '.join(said.split())}", file=sys.stderr, flush=True)
        return _checked(question, said, (reply.model_extra or {})["refinery"], documents)

    questions = read_records(folder / "questions.jsonl", Question)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(zip(questions, pool.map(checked, questions), strict=True))
    yield from table(_HEAD, [_row(found, answers=True), _row(found, answers=False)], numbers=True)


def _row(found: Sequence[tuple[Question, list[int]]], *, answers: bool) -> list[Any]:
    rows = [numbers for question, numbers in found if bool(question.supporting) == answers]
    return ["answer" if answers else "do not answer", *map(sum, zip(*rows, strict=True))]


def _checked(question: Question, said: str, found: dict[str, Any], documents: dict[str, Passage]) -> list[int]:
    """1, and then whether the answer is right, whether it abstains, and its citations: in it, of these by words, resolved, and removed.

    Raises RecordError for a citation of a passage that the answer did not read, or that is none of the documents.
    """
    read, numbers = found.get("read", []), [int(number) for number in _CITATION.findall(said)]
    resolved = [number for number in numbers if 0 < number <= len(read) and read[number - 1]["id"] in documents]
    if len(resolved) < len(numbers):
        raise RecordError(f"'{question.id}': of its citations {numbers}, only {resolved} are of the {len(read)} passages that it read.")
    right = bool(found["answered"] and any(answer.casefold() in said.casefold() for answer in question.answers or []))
    by_words = len(numbers) if found["citations"]["by_words"] else 0
    return [1, int(right), int(not found["answered"]), len(numbers), by_words, len(resolved), found["citations"]["removed"]]


if __name__ == "__main__":
    sys.exit(main())
