"""A judge of self-knowledge that was trained on what another model knows is told of."""

import json

import pytest

from infer.knowledge_source_check import warn_of_another_models_labels
from infer.recipe import PipelineRecipe


@pytest.fixture
def told(tmp_path, caplog):
    """What is logged where the judge's labels are of `labelled` and the model in the folder `answers` answers."""

    def run(models, *, as_adapter=True, base="answers", trained_on=None):
        for name in ("judge", "answers"):
            (tmp_path / name).mkdir()
        (tmp_path / "judge" / "data.json").write_text(json.dumps({"files": [{"made_by": models and {"models": models}}]}))
        if trained_on:
            adapter = {"base_model_name_or_path": str(tmp_path / trained_on)}
            (tmp_path / base / "adapter_config.json").write_text(json.dumps(adapter))
        judge, llm = str(tmp_path / "judge"), {"base": str(tmp_path / base)}
        roles = (
            {"llm": llm | {"adapters": {"self_knowledge": judge}}}
            if as_adapter
            else {"llm": llm, "sub_models": {"self_knowledge": {"base": judge}}}
        )
        values = {"decoder": "ra_isf", "retriever": {"passages": "p"}}
        warn_of_another_models_labels(PipelineRecipe.model_validate(values | roles))
        return caplog.text

    return run


@pytest.mark.parametrize("role", ["target", "target_endpoint", "teacher"])
@pytest.mark.parametrize("as_adapter", [True, False])
def test_another_models_labels_are_named(told, role, as_adapter):
    said = told({role: ["gpt-3.5-turbo"]}, as_adapter=as_adapter)
    assert "was trained on labels of what gpt-3.5-turbo knows" in said
    assert "answers here" in said


def test_the_answering_models_own_labels_are_not(told, tmp_path):
    assert told({"target": [str(tmp_path / "answers")], "teacher": ["gpt-4.1"]}) == ""


def test_nor_are_its_bases(told, tmp_path):
    assert told({"target": [str(tmp_path / "base")]}, trained_on="base") == ""


def test_nothing_is_said_of_labels_that_nobody_described(told):
    assert told(None) == ""
