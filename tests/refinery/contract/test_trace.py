"""Predictions in files: smaller than in memory, and the same when they are read again."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinery.contract.records import Passage, Reading, Step, Trajectory, iter_records, read_records, write_records
from refinery.contract.trace import (
    Cost,
    FilledPrompt,
    ModuleOutput,
    Prediction,
    ScoredPassage,
    TraceStep,
    packed,
    prediction_line,
)
from refinery.errors import RecordError
from refinery.runtime.files.jsonl import write_lines

COST = Cost(calls=1, retrievals=1, prefill_tokens=5, decode_tokens=2)
texts = st.text("abé\u2028{", max_size=4)
floats = st.floats(-9, 0)
passages = st.builds(Passage, id=st.sampled_from("pqr"), title=texts, text=texts)
hits = st.builds(ScoredPassage, id=st.sampled_from("pqr"), title=texts, text=texts, retrieval_score=floats)
tokens = st.none() | st.lists(st.integers(0, 9), max_size=3)
events = st.builds(
    TraceStep,
    name=texts,
    depth=st.integers(0, 3),
    question=texts,
    text=st.none() | texts,
    passages=st.none() | st.lists(hits, max_size=3),
    probabilities=st.none() | st.dictionaries(texts, floats, max_size=2),
    token_ids=tokens,
    prompt=st.none() | st.builds(FilledPrompt, name=texts, values=st.dictionaries(texts, texts, max_size=2)),
    output=st.none() | st.builds(ModuleOutput, texts=st.lists(texts, max_size=2)),
)
steps = st.builds(
    Step,
    action=st.sampled_from(["rewrite", "answer"]),
    text=texts,
    passages=st.lists(passages, max_size=2),
    token_ids=tokens,
    logprobs=st.none() | st.lists(floats, max_size=3),
)
paths = st.builds(
    Trajectory,
    question_id=texts,
    question=texts,
    steps=st.lists(steps, max_size=4),
    system_prompt=st.none() | texts,
    reading=st.none() | st.builds(Reading, num_tokens=st.just(3), logprob=floats, closed=st.just([True]), blank_tokens=st.just(0)),
    right_probability=st.none() | floats,
)
predictions = st.builds(
    Prediction,
    question_id=texts,
    question=texts,
    answer=texts,
    trace=st.lists(events, max_size=4),
    cost=st.just(COST),
    paths=st.lists(paths, max_size=4),
    selected=st.dictionaries(texts, texts, max_size=2),
    failed=st.none() | texts,
)


def tree(depth: int) -> Prediction:
    """A tree with two searches at each node, which find three of five passages."""
    found = [Passage(id=str(number), title=f"film {number}", text="It is by Maria. " * 40) for number in range(5)]

    def below(before: list[Step]) -> list[list[Step]]:
        ends = [[*before, Step(action="answer", text="Lyon", token_ids=[1, len(before)], logprobs=[-0.5, -0.25])]]
        for number in range(2 if len(before) < depth else 0):
            search = Step(action="rewrite", text=f"query {number}", passages=found[number : number + 3], token_ids=[7], logprobs=[-0.1])
            ends += below([*before, search])
        return ends

    paths = [Trajectory(question_id="q", question="Where?", steps=steps) for steps in below([])]
    hits = [ScoredPassage(**passage.model_dump(), retrieval_score=1.0) for passage in found]
    trace = [TraceStep(name="retrieve", depth=0, question="Where?", passages=hits)]
    return Prediction(question_id="q", question="Where?", answer="Lyon", trace=trace, cost=COST, paths=paths)


@given(predictions)
def test_a_prediction_is_read_as_it_was_written(prediction):
    assert Prediction.model_validate_json(prediction_line(prediction)) == prediction


@given(predictions)
def test_a_prediction_in_the_plain_form_is_read_too(prediction):
    assert Prediction.model_validate_json(prediction.model_dump_json(exclude_none=True)) == prediction


@given(predictions)
def test_a_prediction_that_was_read_is_written_as_it_stood(prediction):
    line = prediction_line(prediction)
    assert prediction_line(Prediction.model_validate_json(line)) == line


def test_each_passage_and_each_step_of_a_tree_is_written_once():
    line = prediction_line(tree(4))
    assert line.count("It is by Maria. " * 40) == 5
    stored = packed(tree(4))
    assert (len(stored.passages), len(stored.steps), len(stored.paths)) == (5, 30 + 31, 31)
    assert 20 * len(line) < len(tree(4).model_dump_json(exclude_none=True))


def test_paths_that_were_read_share_their_steps():
    first, second, *_ = Prediction.model_validate_json(prediction_line(tree(2))).paths[1:]
    assert first.steps[0] is second.steps[0]


def test_a_file_may_hold_both_forms(tmp_path):
    write_lines(tmp_path / "new.jsonl", [prediction_line(tree(2))])
    write_records(tmp_path / "old.jsonl", [tree(2)])
    joined = tmp_path / "both.jsonl"
    joined.write_bytes((tmp_path / "new.jsonl").read_bytes() + (tmp_path / "old.jsonl").read_bytes())
    assert read_records(joined, Prediction) == [tree(2), tree(2)]


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("trace", 0, "passages", 0, "passage"), 9, "passages: there is no number 9"),
        (("trace", 0, "passages", 0, "passage"), -1, "trace.0.passages.0.passage: Input should be greater than or equal to 0"),
        (("steps", 1, "passages", 0), -1, "passages: there is no number -1"),
        (("steps", 0, "after"), 0, "steps: there is no number 0"),
        (("paths", 0, "last_step"), 99, "steps: there is no number 99"),
        (("passages", 0, "text"), None, "passages.0.text: Input should be a valid string"),
    ],
)
def test_a_number_of_nothing_is_a_line_that_says_where_it_is(tmp_path, place, value, said):
    values = at = json.loads(prediction_line(tree(1)))
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    (tmp_path / "predictions.jsonl").write_text(json.dumps(values) + "\n")
    with pytest.raises(RecordError) as raised:
        list(iter_records(tmp_path / "predictions.jsonl", Prediction))
    assert str(raised.value) == f"{tmp_path}/predictions.jsonl:1: field 'row': {said}. Expected a Prediction row."
