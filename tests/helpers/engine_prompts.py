"""Prompts for the engine, and what one plain forward pass says of them."""

import asyncio

import torch

from refinery.contract.segments import Segment

PROMPTS = [
    "Question: Who directed Dune?",
    "Lyon",
    "Question: In which city was the director of the film Dune born?\nAnswer:",
    "1984 ",
]


def full_logprobs(model, token_ids: list[int]) -> torch.Tensor:
    """Log-probabilities (tokens, vocab) of what follows each token, in one plain forward pass."""
    with torch.inference_mode():
        return torch.log_softmax(model(input_ids=torch.tensor([token_ids])).logits[0].float(), dim=-1)


def continuation_logprobs(model, prefix: list[int], continuation: list[int]) -> list[float]:
    logprobs = full_logprobs(model, prefix + continuation)[len(prefix) - 1 : -1]
    return logprobs.gather(-1, torch.tensor(continuation)[:, None])[:, 0].tolist()


def generate_all(llm, prompts, *, max_new_tokens=12, **arguments):
    async def run():
        contexts = [llm.context(prompt) for prompt in prompts]
        return await asyncio.gather(*(context.generate(max_new_tokens=max_new_tokens, **arguments) for context in contexts))

    return asyncio.run(run())


def plain(text: str) -> list[Segment]:
    return [Segment(text, "prompt")]
