"""The engine against a plain forward pass of the whole sequence, for every family of decoders; what cannot be decoded is refused."""

import asyncio
import math
from dataclasses import dataclass

import pytest
import torch
from helpers.decoder_families import FAMILIES, REFUSED, WINDOW, family_config, family_model
from transformers import AutoModelForCausalLM

from refinery.contract.segments import Segment
from refinery.errors import CheckpointError
from refinery.llms.engine.huggingface import HuggingFaceLLM
from refinery.llms.weights.checkpoint import load_base

OPENING = "Question: In which city was the director of the film Dune born?"
PROMPTS = ["Lyon", OPENING, f"{OPENING} {OPENING}\nAnswer:"]
FORKS = ["[S_Rewritten_Query]", "[A_Response]"]
EVIDENCE = [Segment(" Dune is a film directed by Maria Torvel, born in Lyon.", "evidence")]
LABELS = [" know", " unknow", " Lyon"]


@dataclass
class Read:
    """Log-probabilities that the engine gave to tokens after a prefix; `chosen` are normalised over the tokens, one place."""

    prefix: list[int]
    tokens: list[int]
    logprobs: list[float]
    adapter: str | None
    kind: str

    @property
    def text(self) -> tuple[int, ...]:
        """All tokens that the log-probabilities hang on."""
        return tuple(self.prefix if self.kind == "chosen" else self.prefix + self.tokens)


async def walk(context, adapter) -> list[Read]:
    """Fork a context, write at every fork, read evidence, score, choose, and write on after what is kept."""
    reads, forks = [], [context, *(context.extend([Segment(token, "control_token")]) for token in FORKS)]
    for steps in (WINDOW + 4, 3):
        written = await asyncio.gather(*(fork.generate(max_new_tokens=steps, adapter=adapter) for fork in forks))
        reads += [Read(f.token_ids, g.token_ids, g.logprobs, adapter, "greedy") for f, g in zip(forks, written, strict=True)]
        forks = [generation.context.extend(EVIDENCE) for generation in written]
    scores = await asyncio.gather(*(fork.score(EVIDENCE, adapter=adapter) for fork in forks))
    ids = forks[0]._llm.token_ids(EVIDENCE)
    reads += [Read(fork.token_ids, ids, logprobs, adapter, "scored") for fork, logprobs in zip(forks, scores, strict=True)]
    labels = [forks[0]._llm.token_ids([Segment(label, "label")])[0] for label in LABELS]
    chosen = await forks[-1].label_probs(LABELS, adapter=adapter)
    return [*reads, Read(forks[-1].token_ids, labels, [math.log(share) for share in chosen.values()], adapter, "chosen")]


async def read_all(llm, prompts, adapters) -> list[Read]:
    """Every prompt with every adapter, all at once."""
    walks = await asyncio.gather(*(walk(llm.context(prompt), adapter) for prompt in prompts for adapter in adapters))
    return [read for reads in walks for read in reads]


@torch.inference_mode()
def beside_plain_passes(model, reads: list[Read]) -> tuple[list[float], list[float]]:
    """The log-probabilities that were read, and those of the model's own forward pass without a cache.

    Greedy text adds those of its tokens, and those of the likeliest ones. There is one pass for each whole text; shorter reads are
    beginnings of these.
    """
    found: list[float] = []
    expected: list[float] = []
    plain: dict[tuple[int, ...], torch.Tensor] = {}
    for read in sorted(reads, key=lambda read: -len(read.text)):
        whole = next((ids for ids in plain if ids[: len(read.text)] == read.text), None)
        if whole is None:
            whole = read.text
            plain[whole] = torch.log_softmax(model(input_ids=torch.tensor([whole]), use_cache=False).logits[0].float(), dim=-1)
        after = plain[whole][len(read.prefix) - 1 :]
        if read.kind == "chosen":
            passed = torch.log_softmax(after[0][read.tokens], dim=-1).tolist()
        else:
            passed = after[torch.arange(len(read.tokens)), read.tokens].tolist()
        found += read.logprobs
        expected += passed
        if read.kind == "greedy":
            found += passed
            expected += after[: len(read.tokens)].max(-1).values.tolist()
    return found, expected


@pytest.mark.parametrize("family", FAMILIES)
def test_the_engine_equals_a_plain_forward_pass(family, control_tokenizer):
    model = family_model(family, control_tokenizer)
    narrow = HuggingFaceLLM(model, control_tokenizer, kv_tokens=300)  # so small that prefixes are given up and computed again
    reads = asyncio.run(read_all(narrow, PROMPTS, [None]))
    narrow.release()
    assert max(len(read.prefix) for read in reads) > 5 * WINDOW
    of_the_engine, plain = beside_plain_passes(model, reads)
    assert of_the_engine == pytest.approx(plain, abs=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_adapters_rows_beside_the_bases_equal_a_plain_forward_pass(family, control_tokenizer):
    from peft import LoraConfig, get_peft_model

    model = family_model(family, control_tokenizer)
    torch.manual_seed(1)
    # PEFT does not mix adapters of a mixture's experts in a batch; `adapters` refuses them.
    layers = ["q_proj", "k_proj", "v_proj", "o_proj"] if hasattr(model.config, "num_experts_per_tok") else "all-linear"
    model = get_peft_model(model, LoraConfig(r=4, target_modules=layers, init_lora_weights=False, task_type="CAUSAL_LM")).eval()
    llm = HuggingFaceLLM(model, control_tokenizer, adapters=["default"], kv_tokens=20_000)
    reads = asyncio.run(read_all(llm, PROMPTS[1:], [None, "default"]))
    llm.release()
    adapted, plain = beside_plain_passes(model, [read for read in reads if read.adapter])
    with model.disable_adapter():
        bare, plain_base = beside_plain_passes(model, [read for read in reads if not read.adapter])
    assert adapted == pytest.approx(plain, abs=1e-4)
    assert bare == pytest.approx(plain_base, abs=1e-4)


@pytest.mark.parametrize("family", REFUSED)
def test_what_cannot_be_decoded_is_refused_before_weights_are_read(family, control_tokenizer, tmp_path):
    model_type, values, word = REFUSED[family]
    family_config(model_type, values, control_tokenizer).save_pretrained(tmp_path)
    control_tokenizer.save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=word) as refusal:
        load_base(str(tmp_path), family="causal")
    assert str(refusal.value).startswith(f"{tmp_path}: ")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("rope_type", "limit"), [("longrope", 64), ("default", 256)])
def test_a_text_is_no_longer_than_its_rotary_angles_are_the_same_in_any_batch(control_tokenizer, rope_type, limit):
    angles = {"rope_type": rope_type, "rope_theta": 1e4} | ({"short_factor": [1.0] * 4, "long_factor": [4.0] * 4} if limit == 64 else {})
    values = {"max_position_embeddings": 256, "original_max_position_embeddings": 64, "rope_parameters": angles}
    config = family_config("phi3", FAMILIES["phi-3"][1] | values, control_tokenizer)
    assert HuggingFaceLLM(AutoModelForCausalLM.from_config(config), control_tokenizer).context_limit == limit
