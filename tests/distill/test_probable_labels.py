"""Labels that the first teacher finds improbable go to the strong one, by the log-probabilities of the reply's tokens."""

import json
import math

import pytest
from helpers.scripted_server import chat_reply, prompt_of, scripted
from hypothesis import given
from hypothesis import strategies as st

from distill.__main__ import main
from refinery.contract.records import KnowledgeLabel, read_records
from refinery.llms.served.transport.chat_labels import value_probability


def reply(word, probability):
    """A reply whose word has this probability; every other token is certain."""
    tokens = [('{"', 0.0), ("answer", 0.0), ('":', 0.0), (' "', 0.0), (word, math.log(probability)), ('"}', 0.0)]
    content = [{"token": token, "logprob": logprob} for token, logprob in tokens]
    message = {"role": "assistant", "content": "".join(token for token, _ in tokens)}
    return chat_reply(choices=[{"message": message, "finish_reason": "stop", "logprobs": {"content": content}}])


def recipe(mock_recipe, first, strong, **values):
    escalate = {"teacher": {"base_url": strong.base_url, "model": "strong"}, "min_probability": 0.8}
    return str(mock_recipe(first.address, count=4, escalate=escalate, **{"task": "self_knowledge", "options": {"by": "teacher"}} | values))


def test_an_improbable_label_is_the_strong_teachers(mock_recipe, tmp_path):
    unsure_of = lambda body: reply("no", 0.6 if "film 2?" in prompt_of(body) else 0.9)  # noqa: E731
    with scripted(lambda body: (200, unsure_of(body))) as first, scripted(lambda body: (200, chat_reply('{"answer": "yes"}'))) as strong:
        path = recipe(mock_recipe, first, strong)
        assert main([path]) == 0
        assert [len(first.bodies), len(strong.bodies)] == [4, 1]
        assert all(body["logprobs"] for body in first.bodies)
        assert not any("logprobs" in body for body in strong.bodies)
        (tmp_path / "run" / "metrics.json").unlink()
        assert main([path, "--resume"]) == 0
        assert [len(first.bodies), len(strong.bodies)] == [4, 1]  # the probabilities are stored too
    rows = read_records(tmp_path / "run" / "train.jsonl", KnowledgeLabel)
    assert [(row.label, row.provenance.model) for row in rows] == [
        ("unknow", "mock"),
        ("unknow", "mock"),
        ("know", "strong"),
        ("unknow", "mock"),
    ]


@pytest.mark.parametrize(
    ("values", "said"),
    [({}, "the endpoint sends no log-probabilities"), ({"task": "decomposition", "options": {}}, "the replies have no labels")],
)
def test_a_run_that_cannot_know_probabilities_ends_in_one_line(mock_recipe, capsys, values, said):
    content = '{"answer": "no"}' if not values else '{"sub_questions": ["Who?", "Where?"]}'
    with scripted(lambda body: (200, chat_reply(content))) as first, scripted(lambda body: (200, chat_reply())) as strong:
        assert main([recipe(mock_recipe, first, strong, **values)]) == 2
        assert len(strong.bodies) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert line.endswith(f"escalate.min_probability: {said}. Leave it out, and use `samples` instead.")


def test_a_protocol_without_log_probabilities_is_refused(mock_recipe, capsys):
    escalate = {"teacher": {"model": "strong"}, "min_probability": 0.8}
    path = mock_recipe("http://127.0.0.1:1", count=1, escalate=escalate, teacher={"protocol": "anthropic_messages"})
    assert main([str(path)]) == 2
    assert "min_probability: protocol 'anthropic_messages' has no log-probabilities. Use `samples` instead." in capsys.readouterr().err


@given(st.sampled_from(["relevant", "irrelevant"]), st.floats(0.01, 1.0), st.integers(1, 8))
def test_a_labels_probability_does_not_depend_on_how_it_is_cut_into_tokens(label, probability, size):
    text = json.dumps({"label": label})
    start = text.index(label)
    pieces = [text[:start], *(label[i : i + size] for i in range(0, len(label), size)), text[start + len(label) :]]
    count = len(pieces) - 2
    tokens = [(piece, math.log(probability) / count if 0 < number <= count else 0.0) for number, piece in enumerate(pieces)]
    assert value_probability("label", tokens) == pytest.approx(probability)


def test_a_field_that_is_not_found_is_improbable_and_no_tokens_say_nothing():
    assert (value_probability("label", [("relevant", 0.0)]), value_probability("label", [])) == (0.0, None)
