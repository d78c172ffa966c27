"""Self-RAG's arithmetic as whole forward passes of a tiny random checkpoint, one for each distribution."""

from copy import deepcopy

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from refinery.contract.control_tokens import SELF_RAG
from refinery.contract.records import Passage, Question

QUESTION = Question(id="q", text="Who directed Dune?", answers=["Maria"])
FILM = Passage(id="film", title="Dune", text="Dune is a film by Maria Torvel.")
SAND = Passage(id="sand", title="Dunes", text="Dunes are hills of sand.")
PROMPT = "### Instruction:\nWho directed Dune?\n\n### Response:\n"
WORTHS = {
    "relevance": {"[Relevant]": 1.0, "[Irrelevant]": 0.0},
    "support": {"[Fully supported]": 1.0, "[Partially supported]": 0.5, "[No support / Contradictory]": 0.0},
    "utility": {f"[Utility:{number}]": worth for number, worth in enumerate((-1.0, -0.5, 0.0, 0.5, 1.0), 1)},
}
CRITIQUES = [*WORTHS["support"], *WORTHS["utility"]]


def self_rag_tokenizer(tiny_tokenizer):
    tokenizer = deepcopy(tiny_tokenizer)
    tokenizer.add_special_tokens({"additional_special_tokens": [token.token for token in SELF_RAG]})
    return tokenizer


def leaning_model(tokenizer, tokens, factor, *, seed):
    """A random Llama whose head leans to some tokens, so that it writes them now and then."""
    torch.manual_seed(seed)
    ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 512}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), initializer_range=0.4, tie_word_embeddings=False, **sizes, **ids))
    with torch.no_grad():
        model.lm_head.weight[[tokenizer.convert_tokens_to_ids(token) for token in tokens]] *= factor
    return model.eval()


class Forward:
    """The model's own arithmetic."""

    def __init__(self, model, tokenizer):
        self.model, self.tokenizer, self.id = model, tokenizer, tokenizer.convert_tokens_to_ids

    def plain(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]

    def prompt(self) -> list[int]:
        return [self.tokenizer.bos_token_id, *self.plain(PROMPT)]

    def evidence(self, passage: Passage, written: list[int] = ()) -> list[int]:
        """The context in which a segment over a passage is written, after what is `written` already."""
        body = self.plain(f"{passage.title}\n{passage.text}")
        return [*self.prompt(), *written, self.id("[Retrieval]"), self.id("<paragraph>"), *body, self.id("</paragraph>")]

    def logprobs(self, token_ids: list[int]) -> torch.Tensor:
        with torch.inference_mode():
            return self.model(torch.tensor([token_ids])).logits[0, -1].double().log_softmax(-1)

    def share(self, token_ids: list[int], tokens) -> list[float]:
        return self.logprobs(token_ids)[[self.id(token) for token in tokens]].softmax(-1).tolist()

    def worth(self, token_ids: list[int], kind: str) -> float:
        shares = self.share(token_ids, WORTHS[kind])
        return sum(worth * share for worth, share in zip(WORTHS[kind].values(), shares, strict=True))

    def worth_of_first(self, context: list[int], new: list[int], kind: str) -> float:
        """The worth where the first token of a kind was written, or 0 if none was."""
        ids = [self.id(token) for token in WORTHS[kind]]
        place = next((place for place, token_id in enumerate(new) if token_id in ids), None)
        return 0.0 if place is None else self.worth(context + new[:place], kind)
