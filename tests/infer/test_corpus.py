"""Questions written from a folder of documents, and what happens where another corpus is searched for them."""

import json

import pytest
import yaml

from distill.__main__ import main as distill
from infer.__main__ import main as infer
from refinery.cli import main as refinery
from refinery.contract.records import Passage, Question, read_records, write_records
from refinery.demo.teacher.server import serving
from refinery.errors import RecordError
from refinery.indexes.supporting_passages import check_supporting
from refinery.passages.corpus import corpus_hash
from refinery.retrievers.base import RetrieverConfig

FILM = "Dune is a film.\n\n" + "It is long and dry. " * 15 + "\n\nMaria Torvel made it."


def reply(prompt: str) -> str:
    if "Questions wanted" in prompt:
        return json.dumps({"questions": [{"question": "Who made Dune?", "answer": "Maria Torvel"}]})
    return json.dumps({"answer": "Maria Torvel" if "Maria Torvel" in prompt else ""})


@pytest.fixture
def go(tmp_path):
    """Run a stage over a recipe of these values, against an endpoint; gives the exit code."""
    (tmp_path / "films").mkdir()
    (tmp_path / "films" / "dune.txt").write_text(FILM)

    def run(stage, part: str, **values) -> int:
        with serving(reply) as server:
            endpoint = {part: {"base_url": server.base_url, "model": "scripted"}}
            (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(values | endpoint))
            return stage([str(tmp_path / "recipe.yaml")])

    return run


@pytest.fixture
def written(go, tmp_path):
    """The folder of questions that a teacher wrote from passages of 20 words."""
    options = {"documents": str(tmp_path / "films"), "words_per_passage": 20}
    assert go(distill, "teacher", task="questions", options=options, output_dir=str(tmp_path / "written"), max_failure_share=1) == 0
    return tmp_path / "written"


def ask(go, written, place: str, **retriever) -> int:
    values = {"questions": [str(written / "train.jsonl")], "output_dir": str(written.parent / place), "retriever": retriever}
    return go(infer, "endpoint", decoder="rag", passages_per_query=2, **values)


def test_the_folder_cut_otherwise_is_refused_in_one_line_before_a_question_is_asked(go, written, tmp_path, capsys):
    capsys.readouterr()
    assert ask(go, written, "answers", passages=str(tmp_path / "films")) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {tmp_path / 'films'}: ")
    assert "which question 'dune.txt:" in line
    assert line.endswith("Search the passages.jsonl that the run wrote beside the questions, or an index of it.")
    assert not (tmp_path / "answers").exists()


def test_the_passages_beside_the_questions_are_searched_in_memory_and_by_an_index(go, written, tmp_path):
    assert ask(go, written, "answers", passages=str(written / "passages.jsonl")) == 0
    assert refinery(["index", str(written / "passages.jsonl"), "--output", str(tmp_path / "index")]) == 0
    assert ask(go, written, "by_index", index=str(tmp_path / "index")) == 0


def test_an_edited_document_is_noticed_by_infer_distill_and_recall(go, written, tmp_path, capsys):
    passages = read_records(written / "passages.jsonl", Passage)
    write_records(tmp_path / "edited.jsonl", [p.model_copy(update={"text": p.text.replace("Torvel", "Orlow")}) for p in passages])
    edited = {"passages": str(tmp_path / "edited.jsonl")}
    capsys.readouterr()
    assert ask(go, written, "answers", **edited) == 2
    labels = {"task": "relevance", "questions": [str(written / "train.jsonl")], "output_dir": str(tmp_path / "labels")}
    assert go(distill, "teacher", retriever=edited, **labels) == 2
    (tmp_path / "retriever.yaml").write_text(yaml.safe_dump({"name": "bm25"} | edited))
    assert refinery(["recall", str(tmp_path / "retriever.yaml"), "--questions", str(written / "train.jsonl")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [": holds another text as 'dune.txt:" in line for line in lines] == [True] * 3


def test_more_passages_or_another_order_change_nothing(tmp_path):
    film, city = Passage(id="film", text="Dune is a film."), Passage(id="city", text="Lyon is a city.")
    write_records(tmp_path / "p.jsonl", [Passage(id="other", text="Oslo"), city, film])
    question = Question(id="q", text="Who?", supporting=["film", "city"], supporting_hash=corpus_hash([film, city]))
    part = {"name": "bm25", "passages": str(tmp_path / "p.jsonl")}
    configs = [RetrieverConfig(passages=tmp_path / "p.jsonl"), RetrieverConfig(name="hybrid", options={"of": [part, part]})]
    assert [refusal(question, config) for config in configs] == [None, None]
    write_records(tmp_path / "p.jsonl", [film])
    for config in configs:
        assert "p.jsonl: does not hold 'city', which question 'q' was written from" in refusal(question, config)


def refusal(question, config):
    """Why a question may not be asked of this corpus, or None."""
    try:
        check_supporting([question], config)
    except RecordError as error:
        return str(error)
    return None


def test_questions_of_a_dataset_are_asked_of_any_corpus(tmp_path):
    write_records(tmp_path / "p.jsonl", [Passage(id="other", text="Oslo")])
    of_a_dataset = Question(id="q", text="Who?", supporting=["film"])
    written = of_a_dataset.model_copy(update={"supporting_hash": "0"})
    assert refusal(of_a_dataset, RetrieverConfig(passages=tmp_path / "p.jsonl")) is None
    assert refusal(written, None) is None
    assert refusal(written, RetrieverConfig(name="candidates")) is None
