"""Thresholds chosen on labels."""

import json
import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from infer.evaluation.calibrate_judge import _best, shown
from refinery.cli import main
from refinery.contract.records import KnowledgeLabel, Passage, RelevanceLabel, write_records
from refinery.errors import UnreachedError

SCORED = st.lists(st.tuples(st.sampled_from([0.05, 0.2, 0.4, 0.6, 0.61, 0.9]), st.booleans()), min_size=1, max_size=12)


def f1(threshold, rows):
    said, gold = [share >= threshold for share, _ in rows], [right for _, right in rows]
    hits = sum(s and g for s, g in zip(said, gold, strict=True))
    return 2 * hits / (sum(said) + sum(gold)) if hits else 0.0


@given(SCORED)
def test_no_other_threshold_has_a_better_f1(rows):
    found = _best("know_threshold", [share for share, _ in rows], [right for _, right in rows], None)
    assert found.f1 == pytest.approx(f1(found.threshold, rows))
    assert found.f1 >= max(f1(threshold / 100, rows) for threshold in range(101)) - 1e-9


@given(SCORED, st.sampled_from([0.5, 0.8, 1.0]))
def test_a_precision_is_kept_or_refused(rows, precision):
    probs, positive = [share for share, _ in rows], [right for _, right in rows]
    reached = [sum(yes := [right for share, right in rows if share >= at]) / len(yes) for at in probs]
    if max(reached) >= precision:
        assert _best("know_threshold", probs, positive, precision).precision >= precision
    else:
        with pytest.raises(UnreachedError, match=rf"no threshold reaches a precision of {precision:g} .* the best is {max(reached):.3f}"):
            _best("know_threshold", probs, positive, precision)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=2, unique=True))
def test_labels_that_a_threshold_separates_are_separated_however_close_they_are(probs):
    found = _best("know_threshold", sorted(probs), [False, True], None)
    assert (found.f1, min(probs) < found.threshold <= max(probs)) == (1.0, True)
    assert yaml.safe_load(shown(found.threshold)) == found.threshold


def test_a_threshold_has_no_more_digits_than_it_needs():
    assert shown(_best("know_threshold", [0.00002, 0.00003], [False, True], None).threshold) == "0.000025"
    assert shown(_best("know_threshold", [0.31, 0.68], [False, True], None).threshold) == "0.5"


@pytest.mark.parametrize("role", ["self_knowledge", "relevance"])
def test_the_command_prints_the_option_as_a_recipe_takes_it(role, tmp_path, tiny_bases, capsys):
    asked = [{"question_id": f"q{number}", "question": f"Who directed film {number}?"} for number in range(6)]
    passage = Passage(id="p", title="Dune", text="Dune is a film. " * 200)  # more than the model's context, so it is shortened
    rows = {
        "self_knowledge": [KnowledgeLabel(**one, label=("know", "unknow")[i % 2]) for i, one in enumerate(asked)],
        "relevance": [RelevanceLabel(**one, passage=passage, label=("relevant", "irrelevant")[i % 2]) for i, one in enumerate(asked)],
    }
    write_records(tmp_path / "labels.jsonl", rows[role])
    recipe = {
        "decoder": "ra_isf",
        "llm": {"base": str(tiny_bases["tied"])},
        "sub_models": {"relevance": {"base": str(tiny_bases["untied"])}},
        "retriever": {"name": "candidates"},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    assert main(["calibrate", str(tmp_path / "recipe.yaml"), "--role", role, "--labels", str(tmp_path / "labels.jsonl")]) == 0
    option = {"self_knowledge": "know_threshold", "relevance": "relevance_threshold"}[role]
    assert re.match(rf"options\.{option}=[\d.]+  # on 6 labels: accuracy 0\.\d+", capsys.readouterr().out)


def test_labels_of_the_other_role_are_refused_by_line(tmp_path, tiny_bases, capsys):
    write_records(tmp_path / "labels.jsonl", [KnowledgeLabel(question_id="q", question="Who?", label="know")])
    recipe = {"decoder": "ra_isf", "llm": {"base": "x"}, "retriever": {"name": "candidates"}}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    assert main(["calibrate", str(tmp_path / "recipe.yaml"), "--role", "relevance", "--labels", str(tmp_path / "labels.jsonl")]) == 2
    assert "labels.jsonl:1: field 'passage'" in capsys.readouterr().err
