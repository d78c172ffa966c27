"""Rejected rows: when there are too many, when they are asked again, and labels that teach nothing."""

import json

import pytest

from benchmarks.distill.endpoint import Settings
from benchmarks.distill.run import endpoint, stats
from distill.__main__ import main
from distill.quality.evaluate import LabeledRun
from distill.viewing.page import write
from refinery.contract.records import Passage, write_records
from refinery.demo.teacher.server import serving

GOOD = '{"sub_questions": ["Who directed it?", "Where was #1 born?"]}'
FEW_AT_ONCE = {"rows_in_flight": 8, "teacher": {"calls_in_flight": 4}}


def read_rows(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_that_is_certain_to_fail_stops_and_says_why(mock_recipe, tmp_path, capsys):
    with serving(lambda prompt: "I'm sorry, but I cannot help.") as server:
        path = str(mock_recipe(server.base_url.removesuffix("/v1"), count=1000, max_failure_share=0.05, **FEW_AT_ONCE))
        assert main([path]) == 2
        assert server.requests < 51 + 2 * 8
    said = capsys.readouterr().err
    assert "rows were rejected, more than max_failure_share 0.05 allows of 1000" in said
    assert "The first: q0: refused: I'm sorry, but I cannot help.; q1: refused: I'm sorry, but I cannot help.; q2: refused:" in said
    assert json.loads((tmp_path / "run" / "stopped.json").read_text())["questions_rejected"] > 50


def test_a_teacher_that_refuses_every_request_stops_the_run_after_a_handful(mock_recipe, tmp_path, capsys):
    with endpoint(Settings(latency_seconds=0.0, refused_share=1.0)) as url:
        assert main([str(mock_recipe(url, count=1000, max_failure_share=1, **FEW_AT_ONCE))]) == 2
        assert stats(url)["requests"] < 4 * FEW_AT_ONCE["rows_in_flight"]
    assert "cannot be used: it refuses every request in the same way: status 400: content filter." in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_what_a_stopped_run_has_paid_is_not_paid_again(mock_recipe, tmp_path):
    with serving(lambda prompt: GOOD if "film 1" in prompt else "I'm sorry, but I cannot help.") as server:
        path = str(mock_recipe(server.base_url.removesuffix("/v1"), count=200, max_failure_share=0.1, **FEW_AT_ONCE))
        assert main([path]) == 2
        first = server.requests
        assert first < 21 + 11 + 2 * 8
        assert len(read_rows(tmp_path / "run" / "train.jsonl")) + len(read_rows(tmp_path / "run" / "failures.jsonl")) == first
        assert not list((tmp_path / "run").glob("*.parquet*"))  # only a whole run has Parquet
        assert main([path, "--resume", "max_failure_share=1"]) == 0
        assert server.requests == 200
    assert (tmp_path / "run" / "train.parquet").exists()


def test_a_run_whose_failures_may_still_be_few_enough_goes_on(mock_recipe, read_metrics):
    def answer(prompt: str) -> str:
        return GOOD if "film 1" in prompt else "I'm sorry, but I cannot help."

    with serving(answer) as server:
        path = mock_recipe(server.base_url.removesuffix("/v1"), count=40, max_failure_share=0.725, **FEW_AT_ONCE)
        assert main([str(path)]) == 0
    assert read_metrics()["rejected_by_reason"] == {"refused": 29}


def test_a_finished_run_asks_again_only_what_failed_for_a_passing_reason(mock_recipe, tmp_path, read_metrics):
    struck = []

    def answer(prompt: str) -> str:
        if "film 3?" in prompt and len(struck) < 2:
            struck.append(prompt)
            raise ConnectionError("gone before it answered")
        return "I'm sorry, but I cannot help." if "film 5?" in prompt else GOOD

    with serving(answer) as server:
        path = str(mock_recipe(server.base_url.removesuffix("/v1"), teacher={"max_tries": 2, "calls_in_flight": 4}))
        assert main([path]) == 0
        assert read_metrics()["rejected_by_reason"] == {"no_reply": 1, "refused": 1}
        before = server.requests
        assert main([path, "--resume"]) == 0
        assert server.requests == before + 1
        assert read_metrics()["rejected_by_reason"] == {"refused": 1}
        assert [row["question_id"] for row in read_rows(tmp_path / "run" / "train.jsonl")][3] == "q3"
        assert main([path, "--resume"]) == 0
        assert server.requests == before + 1


def test_what_an_endpoint_refused_for_good_is_not_asked_again(mock_recipe, tmp_path, read_metrics):
    with endpoint(Settings(latency_seconds=0.0, refused_share=0.1)) as url:
        path = str(mock_recipe(url, max_failure_share=0.5))
        assert main([path]) == 0
        rejected, before = read_metrics()["rejected_by_reason"]["refused"], stats(url)["requests"]
        failures = read_rows(tmp_path / "run" / "failures.jsonl")
        failures[0] |= {"reason": "refused", "detail": "refused: status 402: the account is empty"}
        (tmp_path / "run" / "failures.jsonl").write_text("".join(json.dumps(row) + "\n" for row in failures))
        assert main([path, "--resume"]) == 0
        assert (rejected > 1, stats(url)["requests"]) == (True, before + 2)  # the row, and a tiny request after its refusal


def test_a_finished_run_stays_whole_where_asking_again_fails(mock_recipe, tmp_path, read_metrics):
    with serving(lambda prompt: GOOD) as server:
        path = str(mock_recipe(server.base_url.removesuffix("/v1"), teacher={"max_tries": 1}))
        assert main([path]) == 0
    (tmp_path / "run" / "failures.jsonl").write_text('{"question_id": "q0", "reason": "no_reply", "detail": "no_reply: down"}\n')
    whole = {file.name: file.read_bytes() for file in (tmp_path / "run").glob("*.jsonl")}
    (tmp_path / "run" / "effects.sqlite").unlink()
    metrics = read_metrics() | {"questions_rejected": 1}
    (tmp_path / "run" / "metrics.json").write_text(json.dumps(metrics))
    assert main([path, "--resume"]) == 2
    assert {file.name: file.read_bytes() for file in (tmp_path / "run").glob("*.jsonl")} == whole
    assert read_metrics() == metrics


def test_a_passage_without_a_label_is_counted_told_and_not_asked_again(mock_recipe, tmp_path, read_metrics, capsys, page_by):
    write_records(tmp_path / "passages.jsonl", [Passage(id=f"p{n}", title="Film", text=f"Passage {n} is about a film.") for n in range(2)])

    def answer(prompt: str) -> str:
        return '{"label": "partially relevant"}' if "Passage 1 is" in prompt and "film 0?" in prompt else '{"label": "irrelevant"}'

    with serving(answer) as server:
        values = {"options": {"judge": "each"}, "retriever": {"passages": str(tmp_path / "passages.jsonl")}}
        path = str(mock_recipe(server.base_url.removesuffix("/v1"), count=2, task="relevance", **values))
        assert main([path]) == 0
        asked = server.requests
        assert main([path, "--resume"]) == 0
        assert server.requests == asked
    rows = [(row["question_id"], row["passage"]["id"]) for row in read_rows(tmp_path / "run" / "train.jsonl")]
    assert sorted(rows) == [("q0", "p0"), ("q1", "p0"), ("q1", "p1")]
    assert read_rows(tmp_path / "run" / "failures.jsonl")[0].items() >= {"question_id": "q0", "part": "p1", "reason": "malformed"}.items()
    metrics = read_metrics()
    assert (metrics["questions_labelled"], metrics["questions_rejected"], metrics["unlabeled_parts_by_reason"]) == (2, 0, {"malformed": 1})
    assert "unlabeled  1: malformed 1. See failures.jsonl" in capsys.readouterr().out
    index, details = page_by(write)(tmp_path / "run")
    assert [name for name, _ in details[0]["runs"][0]["facts"]][-1] == "no label for p1"
    assert "unlabeled" in dict(index["about"]["cards"][0]["facts"])
    assert LabeledRun(tmp_path / "run").outcomes.keys() == {"q0", "q1"}


@pytest.mark.parametrize(
    ("relevant", "told"), [("Passage", "6 relevant, 0 irrelevant"), ("nothing", "0 relevant, 6 irrelevant"), ("1", "")]
)
def test_labels_of_one_class_are_told_with_their_count(mock_recipe, tmp_path, caplog, relevant, told):
    write_records(tmp_path / "passages.jsonl", [Passage(id=f"p{n}", title="Film", text=f"Passage {n} is about a film.") for n in range(2)])
    with serving(lambda prompt: json.dumps({"label": "relevant" if relevant in prompt else "irrelevant"})) as server:
        values = {"options": {"judge": "each"}, "retriever": {"passages": str(tmp_path / "passages.jsonl")}}
        assert main([str(mock_recipe(server.base_url.removesuffix("/v1"), count=3, task="relevance", **values))]) == 0
    expected = f"train.jsonl: every label is the same ({told}), so a model trained on them would always give it."
    assert (expected in caplog.text) == bool(told)
