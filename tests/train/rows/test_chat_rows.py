"""Under a chat template a row is trained token by token as inference writes it, for every task."""

import pytest
from helpers.chat_templates import FAMILIES, chat_tokenizer
from helpers.family_rows import ROWS, recipe_values
from helpers.tiny_llama import saved_llama, tiny_llama

from refinery.contract.chat_template import reply_end, template_fingerprint
from refinery.contract.control_tokens import write_manifest
from refinery.contract.formats import prompt_segments
from refinery.contract.segments import IGNORED_LABEL, encode
from refinery.errors import CheckpointError
from refinery.llms.build import ModelConfig, build_llm
from refinery.llms.engine.huggingface import HuggingFaceLLM
from refinery.prompts.render import render_prompt
from train.commands.merge import merge
from train.recipe import TrainRecipe
from train.rows.data import row_segments
from train.run import run

TASKS = ("self_knowledge", "relevance", "selection", "decomposition", "traces", "refinement")


@pytest.fixture(scope="module", params=FAMILIES)
def llm(request):
    tokenizer = chat_tokenizer(request.param)
    return HuggingFaceLLM(tiny_llama(tokenizer), tokenizer)


def opening(llm, recipe):
    """A row of the recipe's task, and the token ids of the context that inference opens for it."""
    record = ROWS[recipe.task][0]
    if recipe.task == "refinement":
        prompt = prompt_segments(record.question, render_prompt(recipe.system_prompt), llm.tokenizer, format="consistent")
    else:
        prompt = recipe.learned.prompt(record)
    return encode(row_segments(record, recipe, llm.tokenizer), llm.tokenizer), llm.context(prompt).token_ids


@pytest.mark.parametrize("task", TASKS)
def test_a_row_begins_with_the_context_that_inference_opens(llm, task, tmp_path):
    recipe = TrainRecipe(**recipe_values(tmp_path, task=task, base=tmp_path))
    row, opened = opening(llm, recipe)
    assert row.input_ids[: len(opened)] == opened
    assert row.labels[: len(opened) + 1] == [*[IGNORED_LABEL] * len(opened), row.input_ids[len(opened)]]


def test_a_label_is_trained_as_it_is_read_and_ends_the_turn(llm, tmp_path):
    recipe = TrainRecipe(**recipe_values(tmp_path, task="relevance", base=tmp_path))
    row = encode(row_segments(ROWS["relevance"][0], recipe, llm.tokenizer), llm.tokenizer)
    trained = [label for label in row.labels if label != IGNORED_LABEL]
    assert llm.tokenizer.decode(trained[:-1]).strip() == "relevant"
    assert trained[-1] == llm.tokenizer.convert_tokens_to_ids(reply_end(llm.tokenizer))


@pytest.fixture
def trained(tmp_path):
    """The folder of a checkpoint that was trained with the template of its tokenizer."""
    tokenizer = chat_tokenizer("llama_3")
    folder = saved_llama(tmp_path / "trained", tokenizer)
    write_manifest(folder, (), tokenizer, chat_template=template_fingerprint(tokenizer))
    return folder


def test_a_trained_checkpoint_keeps_its_template(trained):
    assert "<|eot_id|>" in build_llm(ModelConfig(base=str(trained))).tokenizer.chat_template


def test_a_trained_checkpoint_refuses_another_way_to_be_prompted(trained):
    with pytest.raises(CheckpointError, match=r"was trained with the chat template \w+, and would be prompted with no chat template"):
        build_llm(ModelConfig(base=str(trained), chat_template="none"))


@pytest.mark.parametrize("task", ["refinement", "relevance"])
def test_an_adapter_is_trained_evaluated_loaded_and_merged_under_the_template_of_its_base(task, tmp_path):
    base = saved_llama(tmp_path / "base", chat_tokenizer("qwen_3"), max_position_embeddings=512, tie_word_embeddings=True)
    values = recipe_values(tmp_path, task=task, base=base, max_length=400)
    recipe = TrainRecipe(**(values | {"validation": values["data"]}))
    assert run(recipe, resume=False)["validation_rows"] > 0
    whole = merge(recipe.output_dir, tmp_path / "merged", dtype="float32")
    for config in (ModelConfig(base=str(base), adapters={task: str(recipe.output_dir)}), ModelConfig(base=str(whole))):
        llm = build_llm(config)
        row, opened = opening(llm, recipe)
        assert row.input_ids[: len(opened)] == opened
        assert llm.tokenizer.decode(opened).startswith("<|im_start|>")
