"""The ratio of RQ-RAG's time with a checkpoint to its lower bounds (bare.py), in float32 on one thread, with made-up words:

python -m benchmarks.infer.checkpoint refinery/demo/checkpoint --questions 8 --question-words 90 --passage-words 145
"""

import argparse
import json
from typing import Any

import torch

from benchmarks.infer.floors import RecordingLLM, times_floors
from benchmarks.infer.run import World
from benchmarks.infer.world import Shape, build_tokenizer, draw_questions
from infer.decoders import rq_rag

_FORMATS = {"fixed": "consistent", "official": "official"}


def measure(world: World, *, questions: int, fidelity: str) -> dict[str, Any]:
    """Trees of depth 2 with three actions, queries of 20 tokens and answers of 30."""
    options = rq_rag.Options.model_validate({"max_depth": 2, "max_query_tokens": 20, "format": _FORMATS[fidelity], "fidelity": fidelity})
    llm = RecordingLLM(world.model, world.tokenizer)
    _, seconds = world.together(draw_questions(questions, world.shape), llm, rq_rag.decode, options, max_new_tokens=30)
    llm.release()
    counted = {"forwards": llm.counters.forwards, "tokens_read": llm.counters.prefill_tokens, "seconds": round(seconds, 2)}
    return counted | times_floors(world.model, llm, seconds, options, questions=questions)


def load_world(checkpoint: str, *, question_words: int, passage_words: int) -> World:
    """The checkpoint's weights with a tokenizer of made-up words."""
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None
    sizes = model.config
    layers, heads = sizes.num_hidden_layers, sizes.num_attention_heads
    shape = Shape(sizes.hidden_size, sizes.intermediate_size, layers, heads, sizes.vocab_size, question_words, passage_words)
    return World(shape, model, build_tokenizer(sizes.vocab_size))


def main() -> None:
    """Print the figures of each fidelity as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", help="a folder")
    parser.add_argument("--questions", type=int, default=8)
    parser.add_argument("--question-words", type=int, default=30)
    parser.add_argument("--passage-words", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    world = load_world(arguments.checkpoint, question_words=arguments.question_words, passage_words=arguments.passage_words)
    for _ in range(arguments.repeats):
        for fidelity in _FORMATS:
            print(json.dumps({fidelity: measure(world, questions=arguments.questions, fidelity=fidelity)}), flush=True)


if __name__ == "__main__":
    main()
