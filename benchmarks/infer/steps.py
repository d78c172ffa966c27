"""A step of decoding siblings at Llama-3-8B's shape, launched from Python and replayed from a CUDA graph (a plain padded step on a CPU):

python -m benchmarks.infer.steps [--small]

`ms` is that of one step with all that it needs on the host; `first_ms` includes capturing the graph. `equal` is the share of texts that are
the same token by token: all of them in float32, and in bfloat16 those whose likeliest tokens are not too close.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.infer.run import LLAMA_3_8B, SMALL, World
from benchmarks.infer.world import Shape, draw_questions
from refinery.contract.control_tokens import RQ_RAG
from refinery.contract.segments import Segment
from refinery.llms.engine.kv_budget import default_kv_tokens

if TYPE_CHECKING:
    from refinery.llms.base import Generation

_PREFIX_QUESTIONS = 6  # of which a prompt consists: 540 words of 90


def measure_steps(shape: Shape, *, rows: int, tokens: int, device: str, dtype: str) -> dict[str, Any]:
    """Texts of `tokens` tokens in `rows` trees with four branches each; the second of two runs counts."""
    import torch

    world = World.build(shape, device=device, dtype=dtype)
    texts: dict[str, Sequence[Generation]] = {}
    figures: dict[str, Any] = {"gpu": torch.cuda.get_device_name() if device == "cuda" else None, "rows": rows, "branches": 4 * rows}
    for name, static in (("plain", False), ("graph", True)):
        llm = world.engine(kv_tokens=default_kv_tokens(world.model, "causal"), static_shapes=static)
        runs = [asyncio.run(_write(llm, shape, rows, tokens)) for _ in range(2)]
        llm.release()
        (first, _), (ms, texts[name]) = runs
        figures[name] = {"ms": round(ms, 2), "first_ms": round(first, 2)}
    same = [one.token_ids == other.token_ids for one, other in zip(texts["plain"], texts["graph"], strict=True)]
    figures |= {"equal": sum(same) / len(same), "times_graph": round(figures["plain"]["ms"] / figures["graph"]["ms"], 2)}
    if device == "cuda":
        figures["peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 1)
    return figures


async def _write(llm: Any, shape: Shape, rows: int, tokens: int) -> "tuple[float, Sequence[Generation]]":
    """Milliseconds a step, and the texts."""
    words = [question.text for question in draw_questions(rows * _PREFIX_QUESTIONS, shape)]
    trees = [llm.context(" ".join(words[start::rows])) for start in range(rows)]
    await asyncio.gather(*(tree.score([Segment(RQ_RAG[0].token, "control_token")]) for tree in trees))  # reads the prompts
    contexts = [tree.extend([Segment(token.token, "control_token")]) for tree in trees for token in RQ_RAG[:4]]
    began, before = time.perf_counter(), llm.counters.forwards
    texts = await asyncio.gather(*(context.generate(max_new_tokens=tokens) for context in contexts))
    return 1000 * (time.perf_counter() - began) / (llm.counters.forwards - before), texts


def main(argv: Sequence[str] | None = None) -> None:
    """Print the figures as JSON."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a tiny shape, to rehearse the command")
    parser.add_argument("--rows", type=int, default=48)
    arguments = parser.parse_args(argv)
    device, dtype = ("cuda", "bfloat16") if torch.cuda.is_available() else ("cpu", "float32")
    shape = SMALL if arguments.small else LLAMA_3_8B
    print(json.dumps(measure_steps(shape, rows=arguments.rows, tokens=32, device=device, dtype=dtype), indent=1))


if __name__ == "__main__":
    main()
