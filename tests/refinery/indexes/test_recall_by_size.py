"""Sizes of passages, compared by the text that they find."""

import json
from pathlib import Path

import pytest

from refinery.cli import main
from refinery.contract.records import Passage, Question, write_records
from refinery.indexes.recall_by_size import Cutoffs, measure_sizes, sought_answers, sought_in_supporting
from refinery.passages.settings import SplitSettings
from refinery.passages.sources import iter_passages
from refinery.questions.base import read_named_questions
from refinery.retrievers.base import RetrieverConfig

PROJECT = Path(__file__).parents[3]
REAL = PROJECT / "recipes" / "real" / "data"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "lyon.txt").write_text("Lyon is a city in France. The Rhone flows through it. Its mayor is Maria Torvel.")
    (tmp_path / "docs" / "oslo.txt").write_text("Oslo is a city in Norway. It lies at a fjord.")
    return tmp_path / "docs"


def question(text, **values):
    return Question(id=text, text=text, **values)


LYON = Passage(id="l:1", text="Lyon is a city in France. Its mayor is Maria Torvel.")


def test_supporting_sentences_are_sought_in_passages_and_among_a_questions_own():
    questions = [
        question("given", supporting=["l:1"]),
        question("own", supporting=["own"], passages=[Passage(id="own", text="The Oslo!")]),
        question("unknown", supporting=["l:1", "x"]),
        question("none"),
    ]
    given, own = sought_in_supporting(questions, {"l:1": LYON})
    assert given.paragraphs == [[[" lyon is city in france "], [" its mayor is maria torvel "]]]
    assert (own.question.id, own.paragraphs) == ("own", [[[" oslo "]]])


def test_an_answer_without_spaces_between_its_words_is_found_inside_a_sentence(tmp_path):
    (tmp_path / "zh.txt").write_text("灯塔建于一八七四年，由埃林设计。" + "镇上居民多以捕鱼为生。" * 20, encoding="utf-8")
    sought = sought_answers([question("灯塔建于哪一年", answers=["一八七四年"]), question("灯塔高多少", answers=["四十米"])])
    (found,) = measure_sizes(tmp_path, RetrieverConfig(), sought, [SplitSettings(words_per_passage=20)], Cutoffs([1], [10, 30]))
    assert (found.by_hits, found.by_words) == ({1: 0.5}, {10: 0.0, 30: 0.5})


def test_answers_that_no_passage_quotes_are_not_sought():
    questions = [
        question("a", answers=["The Rhone", "rhone", "Saone"]),
        question("b", answers=["Yes"]),
        question("c", choices=["x"], answers=["A"]),
    ]
    assert [(one.question.id, one.paragraphs) for one in sought_answers(questions)] == [("a", [[[" rhone ", " saone "]]])]


def test_recall_is_the_share_of_sentences_in_the_first_hits_and_words(folder):
    sought = sought_in_supporting([question("Which city in France?", supporting=["l:1"])], {"l:1": LYON})
    sizes = [SplitSettings(words_per_passage=6), SplitSettings(words_per_passage=50)]
    small, large = measure_sizes(folder, RetrieverConfig(), sought, sizes, Cutoffs([1], [6, 30]))
    assert (small.num_passages, large.num_passages) == (5, 2)
    assert (small.by_hits, large.by_hits) == ({1: 0.5}, {1: 1.0})
    assert (small.by_words[6], large.by_words) == (0.5, {6: 0.0, 30: 1.0})


def test_a_text_cut_in_two_is_not_found(folder):
    sought = sought_answers([question("Who is Maria Torvel?", answers=["mayor is Maria Torvel"])])
    cut, whole = measure_sizes(
        folder, RetrieverConfig(), sought, [SplitSettings(words_per_passage=4), SplitSettings(words_per_passage=5)], Cutoffs([5], [50])
    )
    assert (cut.by_hits[5], whole.by_hits[5]) == (0.0, 1.0)


def test_the_command_prints_a_line_for_each_way_to_cut(folder, tmp_path, capsys):
    write_records(tmp_path / "q.jsonl", [question("Which city in France?", answers=["Lyon"]), question("Big?", answers=["yes"])])
    arguments = [
        "recall",
        "--documents",
        str(folder),
        "--questions",
        str(tmp_path / "q.jsonl"),
        "--words",
        "6",
        "50",
        "--overlap",
        "0",
        "2",
    ]
    assert main([*arguments, "--k", "1", "--within", "50"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| retriever | words | overlap | passages | recall@1 | in 50 words |"
    assert [line.split(" | ")[1:3] for line in lines[2:6]] == [["6", "0"], ["6", "2"], ["50", "0"], ["50", "2"]]
    assert lines[-1] == "Recall of answers: 1 questions, 1 without it left out."
    assert main([*arguments, "--json"]) == 0
    assert [row["words_per_passage"] for row in json.loads(capsys.readouterr().out)] == [6, 6, 50, 50]


def test_supporting_passages_of_another_file_are_sought(folder, tmp_path, capsys):
    write_records(tmp_path / "q.jsonl", [question("Which city in France?", supporting=["l:1"])])
    write_records(tmp_path / "p.jsonl", [LYON])
    arguments = ["recall", "--documents", str(folder), "--questions", str(tmp_path / "q.jsonl")]
    assert main([*arguments, "--supporting", str(tmp_path / "p.jsonl")]) == 0
    assert "Recall of supporting text: 1 questions, 0 without it left out." in capsys.readouterr().out
    assert main(arguments) == 2
    assert "have neither supporting passages nor answers to look for" in capsys.readouterr().err


def test_nothing_to_compare_is_refused(tmp_path, capsys):
    write_records(tmp_path / "q.jsonl", [question("Who?", supporting=["x"])])
    assert main(["recall", "--questions", str(tmp_path / "q.jsonl")]) == 2
    assert "Name retrievers' recipes or folders of indexes, or --documents FOLDER." in capsys.readouterr().err


@pytest.mark.slow
def test_bm25_finds_on_real_documents_what_the_page_says(tmp_path):
    """One Markdown document for each title of the real passages."""
    texts: dict[str, list[str]] = {}
    for passage in iter_passages(REAL / "passages.jsonl"):
        texts.setdefault(passage.title, []).append(passage.text)
    for number, (title, parts) in enumerate(texts.items()):
        (tmp_path / f"{number:05d}.md").write_text(f"# {title}\n\n{' '.join(parts)}\n", encoding="utf-8")
    named = [f"{reader}={path}" for reader in ("hotpotqa", "two_wiki", "musique") for path in sorted((REAL / reader).iterdir())]
    sought = sought_in_supporting(read_named_questions(named), {})
    page = (PROJECT / "docs" / "results" / "retrieval.md").read_text(encoding="utf-8")
    for recall in measure_sizes(
        tmp_path, RetrieverConfig(), sought, [SplitSettings(), SplitSettings(words_per_passage=200)], Cutoffs([5], [500])
    ):
        settings = f"| {recall.settings.words_per_passage} | {recall.settings.overlap_words} | {recall.num_passages:,} |"
        assert f"{settings} {100 * recall.by_hits[5]:.1f} | {100 * recall.by_words[500]:.1f} |" in page.replace("**", "")
