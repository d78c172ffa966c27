"""Instructions with replies: GPT4-Alpaca, WizardLM and OpenOrca, in JSON and in Parquet."""

import gzip
import json

import pytest
from pyarrow import Table, parquet

from refinery.errors import RecordError
from refinery.questions.base import find_reader

ALPACA = {"instruction": "Put these words in order. ", "input": "pier, boat", "output": "boat, pier\n"}
ORCA = {"id": "cot.64099", "system_prompt": "Think step by step.", "question": "Is it raining?", "response": "Yes."}


def test_an_input_stands_below_its_instruction(read_rows):
    (question,) = read_rows("gpt4_alpaca", ALPACA)
    assert (question.text, question.answers, question.dataset) == ("Put these words in order.\n\npier, boat", ["boat, pier"], "gpt4_alpaca")


@pytest.mark.parametrize("changes", [{"input": ""}, {"input": " "}])
def test_an_instruction_without_an_input_is_asked_alone(read_rows, changes):
    assert read_rows("gpt4_alpaca", ALPACA | changes)[0].text == "Put these words in order."


def test_wizardlm_has_no_inputs(read_rows):
    (question,) = read_rows("wizardlm", {"instruction": "Name a film.", "output": ""}, name="alpaca_evol_instruct_70k.json")
    assert (question.id, question.text, question.answers, question.dataset) == ("train_0", "Name a film.", [], "wizardlm")


def test_a_system_prompt_is_what_the_assistant_was_told_first(read_rows):
    told, plain = read_rows("openorca", ORCA, ORCA | {"id": "niv.2", "system_prompt": ""})
    assert (told.system_prompt, told.text, told.answers, told.type) == ("Think step by step.", "Is it raining?", ["Yes."], "cot")
    assert (plain.system_prompt, plain.type) == (None, "niv")


def test_a_reader_reads_its_rows_in_parquet_too(tmp_path, read_rows):
    parquet.write_table(Table.from_pylist([ORCA, ORCA | {"system_prompt": None}]), tmp_path / "1M-GPT4-Augmented.parquet")
    found = list(find_reader("openorca").read(tmp_path / "1M-GPT4-Augmented.parquet"))
    assert found == read_rows("openorca", ORCA, {name: value for name, value in ORCA.items() if name != "system_prompt"})


def test_a_row_of_parquet_that_cannot_be_read_is_named(tmp_path):
    parquet.write_table(Table.from_pylist([{"id": "a", "question": "Who?"}]), tmp_path / "rows.parquet")
    with pytest.raises(RecordError, match="rows.parquet: row 1: field 'response': Field required."):
        list(find_reader("openorca").read(tmp_path / "rows.parquet"))


def test_a_packed_file_is_read_as_its_content(tmp_path, read_rows):
    (tmp_path / "train.jsonl.gz").write_bytes(gzip.compress(json.dumps(ORCA).encode()))
    assert list(find_reader("openorca").read(tmp_path / "train.jsonl.gz")) == read_rows("openorca", ORCA)


def test_a_damaged_packed_file_is_one_line(tmp_path):
    (tmp_path / "train.jsonl.gz").write_bytes(b"not packed")
    with pytest.raises(RecordError, match=r"train.jsonl.gz: is damaged, or no gzip file \(.*\). Download it again."):
        list(find_reader("openorca").read(tmp_path / "train.jsonl.gz"))
