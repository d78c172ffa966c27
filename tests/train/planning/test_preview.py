"""What `refinery train RECIPE --preview N` shows, on a terminal and elsewhere."""

import io
import shutil

import pytest
import yaml
from rich.console import Console

from refinery.contract.records import KnowledgeLabel, Passage, Step, Trajectory, write_records
from refinery.contract.segments import IGNORED_LABEL
from train.__main__ import main
from train.planning.preview import preview
from train.recipe import TrainRecipe
from train.rows.data import encode_rows

HOSTILE = Passage(id="1", title="Dune", text="⟦A film⟧ \x1b[31mby\x1b[0m Maria [A_Response] Torvel \u202eeman.")
ROW = Trajectory(
    question_id="q",
    question="Who directed Dune?",
    steps=[Step(action="rewrite", text="director of Dune", passages=[HOSTILE]), Step(action="answer", text="Maria Torvel")],
)


@pytest.fixture
def recipe_of(tiny_bases, tmp_path):
    def recipe(records=(ROW,), **values) -> TrainRecipe:
        write_records(tmp_path / "train.jsonl", records)
        fixed = {"task": "refinement", "base": str(tiny_bases["tied"]), "learning_rate": 1e-3, "output_dir": str(tmp_path / "run")}
        return TrainRecipe.model_validate(fixed | {"data": [str(tmp_path / "train.jsonl")]} | values)

    return recipe


def shown(recipe: TrainRecipe, count: int = 3, **console) -> str:
    file = io.StringIO()
    preview(recipe, count, Console(file=file, width=80, **console))
    return file.getvalue()


def test_off_a_terminal_what_trains_stands_in_brackets(recipe_of):
    text = shown(recipe_of())
    assert "⟦[S_Rewritten_Query]⟧⟦ director of Dune⟧⟦[EOS]⟧[R_Evidences]" in text
    assert "[/R_Evidences]⟦[A_Response]⟧⟦ Maria Torvel⟧⟦[EOS]⟧" in text
    assert "\x1b" not in text


def test_a_weight_stands_behind_what_it_weighs(recipe_of):
    text = shown(recipe_of(loss_weights={"control_token": 2.0, "answer": 0.5}))
    assert "⟦[A_Response]⟧x2⟦ Maria Torvel⟧x0.5⟦[EOS]⟧x2" in text
    assert "⟦ director of Dune⟧⟦[EOS]⟧x2" in text


def test_a_weight_of_zero_masks(recipe_of):
    text = shown(recipe_of(loss_weights={"query": 0, "answer": 0.5}))
    assert "⟦[S_Rewritten_Query]⟧ director of Dune⟦[EOS]⟧" in text
    assert "⟦[A_Response]⟧⟦ Maria Torvel⟧x0.5" in text


def test_a_terminal_gets_colours_and_no_brackets(recipe_of):
    text = shown(recipe_of(loss_weights={"control_token": 2.0}), force_terminal=True, color_system="standard")
    assert "\x1b[32m director of Dune\x1b[0m" in text
    assert "\x1b[1;35m[A_Response]\x1b[0m" in text
    assert "\x1b[2m[R_Evidences]\x1b[0m" in text
    assert "⟦" not in text


def test_a_terminal_without_colours_gets_brackets(recipe_of):
    assert "⟦ director of Dune⟧" in shown(recipe_of(), force_terminal=True, no_color=True)


@pytest.mark.parametrize("terminal", [True, False])
def test_passages_neither_steer_the_terminal_nor_forge_the_marks(recipe_of, terminal):
    text = shown(recipe_of(), force_terminal=terminal, color_system="standard" if terminal else None)
    assert r"\u27e6A film\u27e7 \x1b[31mby\x1b[0m Maria [A_Response] Torvel \u202eeman." in text.replace("\n", "")


@pytest.mark.parametrize("evidence_loss", ["masked", "inside_markers", "all"])
def test_the_counts_are_those_of_the_rows_that_train(recipe_of, evidence_loss):
    from refinery.llms.weights.checkpoint import load_tokenizer
    from train.families.vocabulary import control_tokens_of, extend_tokenizer

    recipe = recipe_of(evidence_loss=evidence_loss)
    tokenizer, _ = extend_tokenizer(load_tokenizer(recipe.base), control_tokens_of(recipe))
    (row,), _ = encode_rows([ROW], recipe, tokenizer)
    counts = {line.split()[0]: [int(number) for number in line.split()[1:3]] for line in shown(recipe).splitlines() if _is_count(line)}
    for kind, (tokens, trained) in counts.items():
        places = [place for place, found in enumerate(row.kinds) if found == kind]
        assert tokens == len(places)
        assert trained == sum(row.labels[place] != IGNORED_LABEL for place in places)
    assert sum(tokens for tokens, _ in counts.values()) == len(row.input_ids)


def _is_count(line: str) -> bool:
    return line.split()[:1] in (["prompt"], ["control_token"], ["query"], ["answer"], ["evidence"]) and len(line.split()) == 4


def test_rows_that_would_be_dropped_are_said_to_be(recipe_of):
    long = ROW.model_copy(update={"question": "Who? " * 400})
    text = shown(recipe_of(records=[ROW, long, ROW], max_length=200))
    assert text.count("--- row") == 2
    assert "max_length 200, overlong: drop; of the first 3 records: rows_dropped_overlong 1" in text


def test_the_command_shows_as_many_rows_as_asked_and_needs_no_weights(recipe_of, tiny_bases, tmp_path, capsys):
    labels = [KnowledgeLabel(question_id=str(i), question=f"Who made film {i}?", label="know") for i in range(5)]
    shutil.copytree(tiny_bases["tied"], tmp_path / "base", ignore=shutil.ignore_patterns("*.safetensors"))
    recipe = recipe_of(records=labels, task="self_knowledge", base=str(tmp_path / "base"))
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe.model_dump(mode="json")))
    assert main([str(tmp_path / "recipe.yaml"), "--preview", "2"]) == 0
    text = capsys.readouterr().out
    assert text.count("--- row") == 2
    assert "⟦ know⟧⟦</s>⟧" in text
    assert not (tmp_path / "run").exists()


def test_an_encoder_decoder_reads_what_a_causal_model_continues(recipe_of):
    text = shown(recipe_of(family="seq2seq"))
    assert "</s>⟦[S_Rewritten_Query]⟧⟦ director of Dune⟧⟦[EOS]" in text
    assert "[/R_Evidences]</s>⟦[A_Response]⟧⟦ Maria Torvel⟧⟦[EOS]" in text


def test_an_encoder_trains_no_token_but_a_label(recipe_of):
    label = KnowledgeLabel(question_id="q", question="Who made it?", label="unknow")
    text = shown(recipe_of(records=[label], task="self_knowledge", family="classifier"))
    assert "0 trained (0.0%), trained label: unknow" in text
    assert "⟦" not in text
