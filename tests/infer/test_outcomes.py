"""What a run makes of questions that go wrong: a row each, the rest answered, the run stopped only by what every question would meet."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from helpers.completions_server import CompletionsServer
from helpers.scripted_server import scripted

from infer.__main__ import main
from infer.evaluation.finished_runs import open_stored
from infer.viewing.card import run_card
from refinery.contract.records import Passage, Question, read_records, write_records
from refinery.contract.trace import PREDICTIONS_FILE, Prediction
from refinery.demo.teacher.server import serving
from refinery.errors import LLMError

PASSAGES = [Passage(id=str(i), title=f"film {i}", text=f"film {i} is a film directed by Maria {i}.") for i in range(6)]
QUESTIONS = [Question(id=f"q{i}", text=f"Who directed film {i}?", answers=[f"Maria {i}"], passages=PASSAGES[:3]) for i in range(6)]
DECODERS = """
from infer.decoders import direct
from infer.decoders.base import Decoder

broken = set()

async def decode(question, session, options):
    if question.id in broken:
        raise KeyError("passages")
    return await direct.decode(question, session, options)

Broken = Decoder(decode, direct.Options)
"""


class Run:
    """A recipe over a scripted chat server, in a folder of its own."""

    def __init__(self, folder: Path, values: dict) -> None:
        self.folder, self.run = folder, folder / "run"
        write_records(folder / "questions.jsonl", QUESTIONS)
        base = {"questions": [str(folder / "questions.jsonl")], "output_dir": str(self.run), "questions_in_flight": 1}
        (folder / "recipe.yaml").write_text(yaml.safe_dump(base | values))

    def start(self, *arguments: str) -> int:
        return main([str(self.folder / "recipe.yaml"), *arguments])

    def outcomes(self) -> dict[str, str | None]:
        """By question why it failed, or None."""
        failed = {row.question_id: row.failed for row in read_records(self.run / PREDICTIONS_FILE, Prediction)}
        return {question_id: why and why.partition(":")[0] for question_id, why in failed.items()}

    def metrics(self) -> dict:
        return json.loads((self.run / "metrics.json").read_text())


@pytest.fixture
def server():
    with serving(lambda prompt: "Maria 1") as server:
        yield server


@pytest.fixture
def run(tmp_path, server) -> Callable[..., Run]:
    return lambda **values: Run(tmp_path, {"decoder": "rag", "endpoint": {"base_url": server.base_url, "model": "scripted"}} | values)


@contextmanager
def retrieval_server(is_up: Callable[[], bool]):
    """Search-R1's /retrieve, as long as `is_up` says so."""

    def answer(body):
        found = [[{"document": {"id": "1", "contents": '"film 1"\nby Maria 1.'}, "score": 1.0}] for _ in body["queries"]]
        return (200, {"result": found}) if is_up() else (404, {})

    with scripted(answer) as server:
        yield f"{server.address}/retrieve"


def test_a_question_without_passages_fails_alone_and_only_it_is_asked_again(run, server, capsys):
    started = run(retriever={"name": "candidates"})
    write_records(started.folder / "questions.jsonl", [*QUESTIONS[:5], QUESTIONS[5].model_copy(update={"passages": None})])
    assert started.start() == 2
    out, err = capsys.readouterr()
    assert "1 of 6 questions failed (unusable_question 1). Pass --resume to ask them again." in err
    assert "\nfailed  unusable_question 1. See predictions.jsonl\n        unusable_question, 1 of 1: " in out
    assert started.outcomes() == dict.fromkeys(["q0", "q1", "q2", "q3", "q4"]) | {"q5": "unusable_question"}
    asked = server.requests
    assert started.start("--resume") == 2
    assert (server.requests, started.metrics()["failed"]) == (asked, 1)


def test_why_replies_were_at_fault_is_told_at_the_end_and_on_the_card(run, tmp_path, capsys):
    with serving(lambda prompt: "I'm sorry, I can't help with that.") as refusing:
        started = run(decoder="direct", endpoint={"base_url": refusing.base_url, "model": "scripted"})
        assert started.start() == 0
    cause = "refused, 6 of 6: answer_direct: I'm sorry, I can't help with that. Try another model."
    assert f"\nfaults  refused 6. See predictions.jsonl\n        {cause}\n" in capsys.readouterr().out
    assert dict(run_card(open_stored(started.run), name="mine")["facts"])["faults"] == f"refused 6\n{cause}"


def test_an_error_that_nobody_foresaw_is_one_questions_and_mended_by_resume(run, server, tmp_path, monkeypatch, caplog):
    (tmp_path / "half_broken.py").write_text(DECODERS)
    monkeypatch.syspath_prepend(tmp_path)
    import half_broken

    half_broken.broken = {"q1", "q4"}
    started = run(decoder="half_broken:Broken")
    assert started.start() == 2
    assert "Traceback" not in caplog.text
    assert [question_id for question_id, why in started.outcomes().items() if why == "KeyError"] == ["q1", "q4"]
    with pytest.raises(LLMError):  # as --traceback shows it
        started.start("--resume", "--traceback")
    assert "KeyError: 'passages'" in caplog.text
    half_broken.broken = set()
    assert started.start("--resume") == 0
    assert (server.requests, set(started.outcomes().values())) == (6, {None})
    assert not list(started.run.glob("*.ledger*"))


def test_a_decoder_that_breaks_at_every_question_stops_the_run_in_one_line(run, tmp_path, monkeypatch, capsys):
    (tmp_path / "all_broken.py").write_text(DECODERS)
    monkeypatch.syspath_prepend(tmp_path)
    import all_broken

    many = [question.model_copy(update={"id": f"many {i}"}) for i, question in enumerate(QUESTIONS * 4)]
    all_broken.broken = {question.id for question in many}
    started = run(decoder="all_broken:Broken")
    write_records(started.folder / "questions.jsonl", many)
    assert started.start() == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: 10 questions in a row failed with an unexpected error, so the run stops; the last one is KeyError")
    assert not (started.run / "metrics.json").exists()


def test_a_failed_question_is_wrong_and_counted_among_the_faults(run, capsys):
    started = run(retriever={"name": "candidates"})
    write_records(started.folder / "questions.jsonl", [QUESTIONS[1], QUESTIONS[2].model_copy(update={"passages": None})])
    assert started.start() == 2
    results = started.metrics()["results"]["rag"]
    assert results["all"]["metrics"]["em.squad"] == {"mean": 50.0, "low": 0.0, "high": 100.0, "questions": 2}
    assert results["faults"] == {"unusable_question": 1}


def test_a_tree_that_failed_leaves_the_others_scored_and_shown(tmp_path, tiny_model, control_tokenizer):
    from infer.evaluation.rescore import rescore
    from infer.viewing.page import write

    tiny_model.save_pretrained(tmp_path / "model")
    control_tokenizer.save_pretrained(tmp_path / "model")
    model = {"llm": {"base": str(tmp_path / "model")}, "retriever": {"name": "candidates"}, "max_new_tokens": 2}
    started = Run(tmp_path, model | {"decoder": "rq_rag", "options": {"max_depth": 1, "max_query_tokens": 2}, "limit": 2})
    write_records(started.folder / "questions.jsonl", [QUESTIONS[0], QUESTIONS[1].model_copy(update={"passages": None})])
    assert started.start() == 2
    assert started.outcomes() == {"q0": None, "q1": "unusable_question"}
    rescore(started.run)
    assert started.outcomes() == {"q0": None, "q1": "unusable_question"}
    assert write([started.run], tmp_path / "page.html", limit=None) == 2


def test_a_context_that_the_server_refuses_is_fitted_to_what_it_says_it_takes(tmp_path, tiny_model, control_tokenizer):
    """As of vLLM with a short --max-model-len."""
    tiny_model.save_pretrained(tmp_path / "model")
    control_tokenizer.save_pretrained(tmp_path / "model")
    long = [Passage(id="long", title="film", text="Maria " * 400)]
    with CompletionsServer(tiny_model, control_tokenizer, max_length=256, max_model_len=256) as server:
        endpoint = {"base_url": server.base_url, "model": "tiny", "tokenizer": str(tmp_path / "model")}
        started = Run(tmp_path, {"decoder": "rag", "endpoint": endpoint, "retriever": {"name": "candidates"}, "max_new_tokens": 4})
        write_records(started.folder / "questions.jsonl", [QUESTIONS[0], QUESTIONS[1].model_copy(update={"passages": long})])
        assert started.start() == 0
    assert started.metrics()["results"]["rag"]["faults"].keys() <= {"truncated", "empty"}
    assert started.metrics()["endpoints"]["model"]["context_limit"] == 256


def test_a_label_read_that_the_server_refuses_is_the_fault_of_its_question(tmp_path, tiny_model, control_tokenizer):
    tiny_model.save_pretrained(tmp_path / "model")
    control_tokenizer.save_pretrained(tmp_path / "model")
    with CompletionsServer(tiny_model, control_tokenizer, max_length=400) as server:
        endpoint = {"base_url": server.base_url, "model": "tiny", "tokenizer": str(tmp_path / "model")}
        started = Run(tmp_path, {"decoder": "ra_isf", "endpoint": endpoint, "retriever": {"name": "candidates"}, "max_new_tokens": 4})
        long = QUESTIONS[1].model_copy(update={"text": "Who directed " + "film " * 400})
        write_records(started.folder / "questions.jsonl", [QUESTIONS[0], long])
        assert started.start() == 2
    assert started.outcomes() == {"q0": None, "q1": "refused"}


def test_a_tree_whose_replies_the_server_refuses_ends_with_faults(tmp_path, tiny_model, control_tokenizer):
    tiny_model.save_pretrained(tmp_path / "model")
    control_tokenizer.save_pretrained(tmp_path / "model")
    with CompletionsServer(tiny_model, control_tokenizer, max_length=300) as server:
        values = {"endpoint": {"base_url": server.base_url, "model": "tiny", "tokenizer": str(tmp_path / "model")}, "limit": 2}
        options = {"max_depth": 1, "max_query_tokens": 300}
        started = Run(
            tmp_path, values | {"decoder": "rq_rag", "options": options, "retriever": {"name": "candidates"}, "max_new_tokens": 2}
        )
        assert started.start() == 0
    assert started.metrics()["results"]["rq_rag_ensemble"]["faults"] == {"refused": 6}


def test_an_answer_without_its_search_is_unfinished_until_the_search_can_be_made(run, server, capsys):
    up = False
    with retrieval_server(lambda: up) as url:
        started = run(retriever={"name": "http", "options": {"url": url}})
        assert started.start() == 2
        assert "all 6 questions failed (search_failed 6). The first, 'q0': search_failed: http://127" in capsys.readouterr().err
        assert not (started.run / "run.json").exists()  # only the replies that were paid for
        up = True
        assert started.start("--resume") == 0
    assert (set(started.outcomes().values()), started.metrics()["failed"]) == ({None}, 0)
    assert server.requests == 12


def test_searches_that_fail_in_a_row_stop_the_run(run, tmp_path, server, capsys):
    started = run(retriever={"name": "http", "options": {"url": "http://127.0.0.1:9/retrieve", "tries": 1}}, questions_in_flight=64)
    write_records(started.folder / "questions.jsonl", [q.model_copy(update={"id": f"{q.id} {i}"}) for i in range(4) for q in QUESTIONS])
    assert started.start() == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: 10 searches in a row failed, so the run stops: http://127.0.0.1:9/retrieve: search failed")
    assert not (started.run / "metrics.json").exists()


def test_compare_shows_what_went_wrong_beside_every_score(run, capsys):
    started = run(retriever={"name": "candidates"})
    write_records(started.folder / "questions.jsonl", [QUESTIONS[1], QUESTIONS[2].model_copy(update={"passages": None})])
    assert started.start() == 2
    from infer.evaluation.compare import print_comparison

    capsys.readouterr()
    print_comparison([started.run], table_format="csv")
    header, row = (line.split(",") for line in capsys.readouterr().out.splitlines())
    shown = dict(zip(header, row, strict=True))
    assert (shown["failed"], shown["faults"]) == ("1", "unusable_question 1")


def test_a_key_that_is_refused_stops_the_run_and_leaves_nothing_in_the_way(run, server, capsys):
    refused = (401, {"error": {"message": "Incorrect API key provided"}})
    with scripted(lambda body: refused, listing=refused) as refusing:
        started = run(endpoint={"base_url": refusing.base_url, "model": "scripted"}, decoder="direct")
        assert started.start() == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "status 401" in line
    assert not started.run.exists()
    assert started.start(f"endpoint.base_url={server.base_url}") == 0


def test_questions_without_gold_answers_are_answered_and_not_scored(run, capsys):
    started = run(decoder="direct")
    write_records(started.folder / "questions.jsonl", [question.model_copy(update={"answers": []}) for question in QUESTIONS])
    assert started.start() == 0
    assert "6 questions, 6 of them without gold answers and not scored" in " ".join(capsys.readouterr().out.split())
    assert set(started.outcomes().values()) == {None}
    assert started.metrics()["results"]["direct"]["all"] == {"questions": 6, "em": None, "f1": None, "metrics": {}}
    assert started.metrics()["questions_without_gold_answers"] == 6


def test_a_request_that_got_no_reply_while_others_did_is_asked_again(tmp_path):
    hangs_up_on = "film 3"

    def answer(prompt: str) -> str:
        if hangs_up_on in prompt:
            raise ConnectionResetError
        return "Maria 1"

    with serving(answer) as server:
        endpoint = {"base_url": server.base_url, "model": "scripted", "max_tries": 1}
        started = Run(tmp_path, {"decoder": "direct", "endpoint": endpoint, "questions_in_flight": 6})
        assert started.start() == 2
        assert started.outcomes() == dict.fromkeys(["q0", "q1", "q2", "q4", "q5"]) | {"q3": "no_reply"}
        hangs_up_on = "nobody"
        assert started.start("--resume") == 0
    assert set(started.outcomes().values()) == {None}


def test_a_full_disk_is_one_line_and_the_run_goes_on_from_what_was_written(tmp_path, server):
    values = {
        "decoder": "direct",
        "endpoint": {"base_url": server.base_url, "model": "scripted"},
        "keep_prompts": True,
        "questions_in_flight": 2,
    }
    started = Run(tmp_path, values)
    many = [
        question.model_copy(update={"id": f"{question.id} {i}", "text": f"{i}: {question.text}", "passages": None})
        for i in range(10)
        for question in QUESTIONS
    ]
    write_records(tmp_path / "questions.jsonl", many)
    limited = f"ulimit -f 100; exec {sys.executable} -m infer {tmp_path / 'recipe.yaml'}"
    done = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert re.search(r"^error: .*effects\.sqlite: cannot be used as a store \(disk I/O error\)\. Free some space or", line)
    asked = server.requests
    assert started.start("--resume") == 0
    assert 0 < server.requests - asked < len(many)
