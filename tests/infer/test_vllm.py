"""Decoders on vLLM in this process, with a double of its engine: the same answers as from our engine, and refusals of one line."""

from pathlib import Path

import pytest
import yaml
from helpers import vllm_double
from helpers.trees import trees
from helpers.vllm_double import Engine

from infer.__main__ import main
from refinery.contract.records import Passage, Question, read_records, write_records
from refinery.contract.trace import PREDICTIONS_FILE, Prediction
from refinery.errors import RecipeError
from refinery.llms import build
from refinery.llms.build import ModelConfig, build_llm
from refinery.llms.weights.checkpoint import read_adapter_config

QUESTIONS = [Question(id=f"q{i}", text=f"Who directed film {i}?", answers=[f"Maria {i}"], split="test") for i in range(2)]
PASSAGES = [Passage(id=str(i), title=f"film {i}", text=f"film {i} is by Maria {i}.") for i in range(4)]
ROLES = ("self_knowledge", "relevance", "decomposition")
RQ_RAG_TREE = {"decoder": "rq_rag", "options": {"max_query_tokens": 5}}
RA_ISF = {"decoder": "ra_isf", "options": {"max_depth": 1, "max_sub_question_tokens": 8, "know_threshold": 0.9}}


@pytest.fixture
def engines(monkeypatch) -> list[Engine]:
    """The double's engines, in the order in which they were started."""
    return vllm_double.install(monkeypatch)


@pytest.fixture
def adapters(checkpoint, tmp_path) -> dict[str, str]:
    """Random adapters on the checkpoint, by role."""
    return {role: random_adapter(checkpoint, tmp_path / role, seed) for seed, role in enumerate(ROLES)}


def random_adapter(checkpoint: Path, folder: Path, seed: int, **config) -> str:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    lora = LoraConfig(r=4 * (seed + 1), target_modules=["q_proj", "v_proj"], init_lora_weights=False, task_type="CAUSAL_LM", **config)
    get_peft_model(AutoModelForCausalLM.from_pretrained(checkpoint), lora).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def answer(tmp_path):
    """Run a recipe with its `output_dir` under `place`; gives the exit code and the predictions."""

    def run(place: str, **values) -> tuple[int, list[Prediction]]:
        write_records(tmp_path / "questions.jsonl", QUESTIONS)
        write_records(tmp_path / "passages.jsonl", PASSAGES)
        recipe = {
            "questions": [str(tmp_path / "questions.jsonl")],
            "output_dir": str(tmp_path / place),
            "retriever": {"passages": str(tmp_path / "passages.jsonl")},
            "passages_per_query": 2,
            "max_new_tokens": 6,
        }
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe | values))
        code, file = main([str(tmp_path / "recipe.yaml")]), tmp_path / place / PREDICTIONS_FILE
        return code, read_records(file, Prediction) if file.exists() else []

    return run


@pytest.mark.parametrize("fidelity", ["fixed", "official"])
def test_trees_are_those_of_our_engine(answer, checkpoint, engines, fidelity):
    tree = RQ_RAG_TREE | {"options": {"max_query_tokens": 5, "fidelity": fidelity}}
    code, on_vllm = answer("vllm", **tree, llm={"engine": "vllm", "base": str(checkpoint)})
    assert code == 0
    _, here = answer("here", **tree, llm={"base": str(checkpoint)})
    found, expected = trees(on_vllm), trees(here)
    assert found.keys() == expected.keys()
    for path, logprobs in expected.items():
        assert found[path] == pytest.approx(logprobs, abs=1e-4)
    assert sum(prediction.cost.calls for prediction in on_vllm) == len(engines[0].requests)
    assert not any(prediction.cost.prefill_at_most for prediction in on_vllm)


def test_prefix_hits_are_not_counted_as_prefill(answer, checkpoint, engines):
    _, on_vllm = answer("vllm", **RQ_RAG_TREE, llm={"engine": "vllm", "base": str(checkpoint)})
    sent = sum(len(ids) for ids, _, _ in engines[0].requests)
    assert 0 < sum(prediction.cost.prefill_tokens for prediction in on_vllm) < sent


def test_adapters_play_their_roles(answer, checkpoint, adapters, engines):
    code, on_vllm = answer("vllm", **RA_ISF, llm={"engine": "vllm", "base": str(checkpoint), "adapters": adapters})
    assert code == 0
    _, here = answer("here", **RA_ISF, llm={"base": str(checkpoint), "adapters": adapters})
    assert [prediction.answer for prediction in on_vllm] == [prediction.answer for prediction in here]
    arguments = engines[0].arguments
    assert (arguments.enable_lora, arguments.max_loras, arguments.max_lora_rank) == (True, 3, 16)  # ranks 4, 8 and 12
    assert {lora and lora.lora_name for _, _, lora in engines[0].requests} >= {None, adapters["self_knowledge"], adapters["relevance"]}


def test_a_sample_does_not_depend_on_the_batch(answer, checkpoint, engines):
    for number in range(2):
        answer(f"run_{number}", decoder="direct", temperature=1.0, samples=2, llm={"engine": "vllm", "base": str(checkpoint)})
    seeds = [sorted((tuple(ids), params.seed) for ids, params, _ in engine.requests) for engine in engines]
    assert seeds[0] == seeds[1]
    assert len({seed for _, seed in seeds[0]}) == 2 * len(QUESTIONS)


def test_the_recipe_says_how_the_model_is_loaded(answer, checkpoint, engines):
    keys = {"tensor_parallel": 2, "gpu_memory_utilization": 0.5, "max_model_len": 512, "dtype": "bfloat16", "seed": 7}
    answer("vllm", decoder="direct", llm={"engine": "vllm", "base": str(checkpoint), **keys})
    arguments = engines[0].arguments
    assert (arguments.tensor_parallel_size, arguments.gpu_memory_utilization, arguments.max_model_len) == (2, 0.5, 512)
    assert (arguments.dtype, arguments.seed, arguments.model) == ("bfloat16", 7, str(checkpoint))


def test_the_recipe_passes_what_vllm_has_for_speed_and_memory(answer, checkpoint, engines):
    given = {"max_num_seqs": 64, "quantization": "fp8", "speculative_config": {"method": "ngram", "num_speculative_tokens": 4}}
    ours = {"enforce_eager": False, "enable_prefix_caching": False, "max_loras": 4}  # other values than we give
    answer("vllm", decoder="direct", llm={"engine": "vllm", "base": str(checkpoint), "engine_args": given | ours})
    arguments = engines[0].arguments
    assert {name: getattr(arguments, name) for name in given | ours} == given | ours


def test_weights_stored_as_float32_are_not_rounded(answer, checkpoint, engines):
    answer("vllm", decoder="direct", llm={"engine": "vllm", "base": str(checkpoint)})
    assert engines[0].arguments.dtype == "float32"


@pytest.mark.parametrize(
    ("llm", "said"),
    [
        ({"engine": "vllm", "kv_tokens": 100}, "llm.engine: `kv_tokens` is a key of the other engine; leave it out, or choose that engine"),
        ({"tensor_parallel": 2}, "llm.engine: `tensor_parallel` is a key of the other engine; leave it out, or choose that engine"),
        (
            {"engine": "vllm", "gpu_memory_utilization": 0.01},
            "vLLM cannot start (Value error, too little memory). Its own messages are above.",
        ),
        (
            {"engine": "vllm", "engine_args": {"worker_cls": "mine.Worker"}},
            "llm.engine_args: 'worker_cls' cannot be given here. Available:",
        ),
        ({"engine": "vllm", "engine_args": {"block_size": 32}}, "engine_args: the installed vLLM has no 'block_size'."),
        ({"engine_args": {"max_num_seqs": 8}}, "llm.engine: `engine_args` is a key of the other engine"),
    ],
)
def test_a_wrong_key_is_refused_in_one_line(answer, checkpoint, engines, capsys, llm, said):
    code, _ = answer("vllm", decoder="direct", llm={"base": str(checkpoint), **llm})
    assert code == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert said in lines[0]


def test_without_vllm_the_extra_is_named(answer, checkpoint, capsys):
    code, predictions = answer("vllm", decoder="direct", llm={"engine": "vllm", "base": str(checkpoint)})
    assert (code, predictions) == (2, [])
    assert "llm.engine: vLLM is not installed. Install it: pip install " in capsys.readouterr().err


@pytest.mark.parametrize(("device", "starts"), [("cuda:0", 1), ("cpu", 0)])
def test_auto_is_vllm_where_it_is_installed_and_a_gpu_is_there(answer, checkpoint, engines, monkeypatch, device, starts):
    monkeypatch.setattr(build, "own_device", lambda: device)
    llm = {"engine": "auto", "base": str(checkpoint), "device": "cpu", "kv_tokens": 4096, "tensor_parallel": 2}
    code, predictions = answer("auto", decoder="direct", llm=llm)
    assert (code, len(predictions), len(engines)) == (0, len(QUESTIONS), starts)


def test_auto_is_our_engine_for_what_vllm_cannot_serve(checkpoint, tmp_path, engines, monkeypatch):
    monkeypatch.setattr(build, "own_device", lambda: "cuda:0")
    path = random_adapter(checkpoint, tmp_path / "rows", 0, trainable_token_indices=[1, 2])
    assert build._vllm_can(ModelConfig(base=str(checkpoint), engine="auto"))
    assert not build._vllm_can(ModelConfig(base=str(checkpoint), adapters={"relevance": path}, engine="auto"))
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert not build._vllm_can(ModelConfig(base=str(checkpoint), engine="auto"))


def test_tokens_that_a_tree_sends_are_those_of_its_requests(answer, checkpoint, engines):
    _, on_vllm = answer("vllm", **RQ_RAG_TREE, llm={"engine": "vllm", "base": str(checkpoint)})
    _, here = answer("here", **RQ_RAG_TREE, llm={"base": str(checkpoint)})
    sent = [len(ids) for ids, _, _ in engines[0].requests]
    ours = [sum(prediction.cost.prefill_tokens for prediction in predictions) for predictions in (on_vllm, here)]
    hits = sum(engines[0].hits)
    assert ours[0] == sum(sent) - hits
    assert ours[1] <= ours[0] < sum(sent)  # our engine shares every token of a prefix


def test_several_processes_are_refused(checkpoint, engines, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(
        RecipeError, match="engine: each of 4 processes would load vLLM on the same GPUs. Start one, and set tensor_parallel"
    ):
        build_llm(ModelConfig(base=str(checkpoint), engine="vllm"))


def test_an_adapter_with_token_rows_must_be_merged(answer, checkpoint, tmp_path, engines, capsys):
    path = random_adapter(checkpoint, tmp_path / "rows", 0, trainable_token_indices=[1, 2])
    assert (read_adapter_config(path) or {})["trainable_token_indices"]
    for llm in ({"base": path}, {"base": str(checkpoint), "adapters": {"relevance": path}}):
        code, _ = answer("vllm", **RA_ISF | {"llm": {"engine": "vllm", **llm}, "sub_models": sub_models(checkpoint, llm)})
        assert code == 2
        assert f"Merge it (refinery merge {path} --output DIR)" in capsys.readouterr().err
    assert engines == []


def sub_models(checkpoint: Path, llm: dict) -> dict:
    """Models for the roles that the recipe's model does not play."""
    return {role: {"base": str(checkpoint)} for role in ROLES if role not in llm.get("adapters", {})}


def test_an_engine_that_has_ended_stops_the_run(answer, checkpoint, engines, monkeypatch, capsys):
    monkeypatch.setattr(Engine, "fault", vllm_double.EngineDeadError())
    code, _ = answer("vllm", decoder="direct", llm={"engine": "vllm", "base": str(checkpoint)})
    assert code == 2
    assert "vLLM's engine has ended" in capsys.readouterr().err
