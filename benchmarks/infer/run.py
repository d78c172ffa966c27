"""The measurements of `python -m benchmarks.infer`: the engine against plain decoders (tests/reference), in one run.

The models are random Llamas in float32 on one thread: on a busy CPU, a second thread helps neither side. Time on a CPU is this process's
CPU time, so other work on the machine does not count. `rq_rag` decodes questions at depth 2 with three actions and the lengths of the
authors' runs (a prompt of 120 tokens, queries of 20, evidence of 450, answers of 30), on a model with hidden size 384 and SmolLM2's
vocabulary of 49,152, whose head is most of it. `rq_rag_layers` has shorter texts and 86 M parameters, most of them in 10 layers.
`rq_rag_official` is the authors' procedure: their format, their parsing of queries and answers, and the probability of every token that is
read. The references decode a few of the questions, and their time is scaled up.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from benchmarks.infer.world import Shape, build_model, build_tokenizer, draw_questions, find_passages
from infer.decoders import ra_isf, rq_rag
from infer.session import Session
from refinery.contract.records import Passage, Question, Trajectory
from refinery.contract.tokenizer import Tokenizer
from refinery.contract.trace import Prediction
from refinery.llms.base import LLM
from refinery.llms.fake import FakeLLM
from refinery.llms.weights.device import use_attention_of_any_shape
from refinery.retrievers.fake import FakeRetriever
from refinery.runtime.run.progress import Progress
from tests.reference.ra_isf import LlamaModels, problem_solving
from tests.reference.rq_rag import ReferencePath, decode_plainly

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

    from refinery.llms.engine.huggingface import HuggingFaceLLM

LARGE = Shape(hidden_size=384, intermediate_size=1344, layers=2, heads=4, vocabulary=49_152, question_words=90, passage_words=145)
SMALL = Shape(hidden_size=128, intermediate_size=384, layers=2, heads=4, vocabulary=2_048, question_words=30, passage_words=20)
SHORT_QUESTIONS = Shape(hidden_size=384, intermediate_size=1344, layers=2, heads=4, vocabulary=49_152, question_words=15, passage_words=110)
LLAMA_3_8B = Shape(
    hidden_size=4096, intermediate_size=14_336, layers=32, heads=32, vocabulary=128_256, question_words=90, passage_words=145
)

LAYERS = Shape(hidden_size=768, intermediate_size=2560, layers=10, heads=12, vocabulary=8192, question_words=30, passage_words=40)

T = TypeVar("T")


def measure() -> dict[str, Any]:
    """Measure every row against its reference; on a GPU also `rq_rag_gpu`."""
    import torch

    rows: dict[str, Callable[[], dict[str, Any]]] = {
        "rq_rag": measure_rq_rag,
        "rq_rag_layers": partial(measure_rq_rag, LAYERS, number=2, compared=1),
        "rq_rag_official": partial(measure_rq_rag, number=4, compared=1, as_released=True),
        "rq_rag_depth4": measure_depth4,
        "ra_isf": measure_ra_isf,
    }
    if torch.cuda.is_available():
        rows["rq_rag_gpu"] = partial(measure_rq_rag, LLAMA_3_8B, number=64, compared=2, device="cuda", dtype="bfloat16")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    figures: dict[str, Any] = {}
    try:
        with Progress("bench infer", total=len(rows), below=lambda: next((row for row in rows if row not in figures), "")) as progress:
            for name, row in rows.items():
                figures[name] = row()
                progress.advance()
    finally:
        torch.set_num_threads(threads)
    return figures


def measure_rq_rag(
    shape: Shape = LARGE,
    *,
    number: int = 8,
    compared: int = 2,
    as_released: bool = False,
    device: str = "cpu",
    dtype: str = "float32",
    graphs: bool = False,
) -> dict[str, Any]:
    """RQ-RAG at depth 2: `number` questions at once, against `compared` of them one path at a time, and against bare.py's lower bounds.

    With `graphs`, decoding steps are padded, and on a GPU replayed from CUDA graphs.
    """
    from benchmarks.infer.floors import RecordingLLM, off_float32, times_floors
    from refinery.llms.engine.kv_budget import default_kv_tokens

    world = World.build(shape, device=device, dtype=dtype)
    questions = draw_questions(number, shape)
    limits: dict[str, Any] = {"max_depth": 2, "max_query_tokens": 20, "format": "official" if as_released else "consistent"}
    options = rq_rag.Options(**limits, fidelity="official" if as_released else "fixed")
    # The reference uses transformers' attention; the engine replaces it in the model that it receives.
    plain, seconds_each = world.one_by_one(
        questions[:compared], lambda question: world.reference_paths(question, limits, max_new_tokens=30)
    )
    kv_tokens = default_kv_tokens(world.model, "causal")
    engine = RecordingLLM(world.model, world.tokenizer, kv_tokens=kv_tokens, static_shapes=graphs)
    predictions, seconds = world.together(questions, engine, rq_rag.decode, options, max_new_tokens=30)
    engine.release()
    return {
        **_compare(predictions, plain),
        "prefill_over_floor": round(engine.counters.prefill_tokens * compared / number / sum(map(_floor, plain)), 4),
        "speedup": round(seconds_each * number / seconds, 2),
        **times_floors(world.model, engine, seconds, options, questions=number),
        **off_float32(world.model, engine.logprobs),
        "questions": number,
        "seconds_per_question": round(seconds / number, 3),
        "reference_seconds_per_question": round(seconds_each, 3),
    }


def measure_depth4() -> dict[str, Any]:
    """RQ-RAG at depth 4, limited to a third of the tokens that its deepest paths would take with separate keys and values."""
    world = World.build(SMALL)
    questions = draw_questions(1, SMALL)
    limits: dict[str, Any] = {"max_depth": 4, "max_query_tokens": 8}
    plain, _ = world.one_by_one(questions, lambda question: world.reference_paths(question, limits, max_new_tokens=8))
    deepest = [len(path.input_ids) for path in plain[0] if len(path.actions) == 5]
    engine = world.engine(kv_tokens=sum(deepest) // 3)
    predictions, _ = world.together(questions, engine, rq_rag.decode, rq_rag.Options(**limits), max_new_tokens=8)
    return {
        **_compare(predictions, plain),
        "peak_kv_tokens": engine.peak_kv_tokens,
        "kv_budget": engine.kv_tokens,
        "materialised_tokens": sum(deepest),
        "prefill_over_floor": round(engine.counters.prefill_tokens / _floor(plain[0]), 4),
    }


def measure_ra_isf(shape: Shape = SHORT_QUESTIONS, *, number: int = 48) -> dict[str, Any]:
    """RA-ISF on `number` questions at once, against one call after another. A random model cannot write lists, so M_decom is a function."""
    world = World.build(shape)
    questions = draw_questions(number, shape)
    models = LlamaModels(world.model, world.tokenizer, world.find, _decompose, max_new_tokens=30)
    plain, seconds_each = world.one_by_one(questions, lambda question: problem_solving(question.text, 0, models, max_depth=1))
    engine = world.engine()
    written = FakeLLM(lambda prompt: "".join(f"\n{i}. {text}" for i, text in enumerate(_decompose(_asked(prompt)), 1)))
    predictions, seconds = world.together(
        questions, engine, ra_isf.decode, ra_isf.Options(max_depth=1), max_new_tokens=30, sub_models={"decomposition": written}
    )
    return {
        "identical": [prediction.answer for prediction in predictions] == plain,
        "speedup": round(seconds_each * len(questions) / seconds, 2),
        "questions": len(questions),
        "seconds_per_question": round(seconds / len(questions), 3),
        "reference_seconds_per_question": round(seconds_each, 3),
    }


@dataclass(frozen=True, slots=True)
class World:
    """A model with its tokenizer, and the two ways to decode with it."""

    shape: Shape
    model: "LlamaForCausalLM"
    tokenizer: Tokenizer

    @classmethod
    def build(cls, shape: Shape, *, device: str = "cpu", dtype: str = "float32") -> "World":
        """A random Llama of a shape, with the kernels that inference uses."""
        use_attention_of_any_shape()
        tokenizer = build_tokenizer(shape.vocabulary)
        return cls(shape, build_model(shape, tokenizer, device=device, dtype=dtype), tokenizer)

    def find(self, query: str) -> list[Passage]:
        """Three passages that depend only on the query."""
        return find_passages(query, self.shape)

    def engine(self, **settings: Any) -> "HuggingFaceLLM":
        """The engine over the model."""
        from refinery.llms.engine.huggingface import HuggingFaceLLM

        return HuggingFaceLLM(self.model, self.tokenizer, **settings)

    def reference_paths(self, question: Question, limits: dict[str, Any], *, max_new_tokens: int) -> list[ReferencePath]:
        """Every path, decoded plainly."""
        return decode_plainly(question, self.model, self.tokenizer, self.find, max_new_tokens=max_new_tokens, **limits)

    def one_by_one(self, questions: Sequence[Question], answer: Callable[[Question], T]) -> tuple[list[T], float]:
        """The answer to each question, and the mean seconds per question."""
        started = self._now()
        answers = [answer(question) for question in questions]
        return answers, (self._now() - started) / len(questions)

    def together(
        self,
        questions: Sequence[Question],
        engine: LLM,
        decode: Callable[[Question, Session, Any], Awaitable[Prediction]],
        options: Any,
        *,
        max_new_tokens: int,
        sub_models: dict[str, LLM] | None = None,
    ) -> tuple[list[Prediction], float]:
        """The predictions of all questions, decoded at once, and the seconds that they take together."""

        async def answer(question: Question) -> Prediction:
            retriever = FakeRetriever(self.find)
            session = Session(question, engine, retriever, 5, sub_models=sub_models or {}, max_new_tokens=max_new_tokens)
            return await decode(question, session, options)

        async def answer_all() -> list[Prediction]:
            return await asyncio.gather(*map(answer, questions))

        started = self._now()
        return asyncio.run(answer_all()), self._now() - started

    def _now(self) -> float:
        """Seconds: process CPU time on a CPU, where nothing waits, and wall-clock time on a GPU."""
        return time.process_time() if self.model.device.type == "cpu" else time.perf_counter()


def _compare(predictions: Sequence[Prediction], plain: Sequence[Sequence[ReferencePath]]) -> dict[str, Any]:
    """Whether the tokens and answers of every path agree, and the largest difference of their log-probabilities, which select the path."""
    identical, difference = True, 0.0
    for prediction, paths in zip(predictions, plain, strict=False):
        ours = {tuple(step.action for step in path.steps): path for path in prediction.paths}
        identical &= len(ours) == len(paths)
        for path in paths:
            steps = ours[path.actions].steps
            same = [step.token_ids for step in steps] == path.token_ids and steps[-1].text == path.answer
            identical &= same
            if same:
                difference = max([difference, *_differences(ours[path.actions], path.logprobs)])
    return {"identical": identical, "max_score_difference": difference}


def _differences(path: Trajectory, logprobs: Sequence[Sequence[float]]) -> list[float]:
    return [abs(a - b) for step, those in zip(path.steps, logprobs, strict=True) for a, b in zip(step.logprobs or [], those, strict=True)]


def _floor(paths: Sequence[ReferencePath]) -> int:
    """The number of tokens that the model must read besides those it has just written: the last token of every distinct prefix, once."""
    read: set[tuple[int, ...]] = set()
    written: set[tuple[int, ...]] = set()
    for path in paths:
        ids, start = tuple(path.input_ids), 0
        for step in path.token_ids:
            start = _find(ids, tuple(step), start)
            written |= {ids[: start + i + 1] for i in range(1, len(step))}
            start += len(step)
        read |= {ids[: i + 1] for i in range(len(ids))}
    return len(read - written)


def _find(ids: tuple[int, ...], part: tuple[int, ...], start: int) -> int:
    return next(i for i in range(start, len(ids)) if ids[i : i + len(part)] == part)


def _decompose(question: str) -> list[str]:
    """Two sub-questions: the halves of the question, each with its first word repeated at the end."""
    words = question.split()
    middle = len(words) // 2
    return [" ".join([*half, *half[:1]]) for half in (words[:middle], words[middle:])]


def _asked(prompt: str) -> str:
    return next(line for line in prompt.splitlines() if line.startswith("Question: ")).removeprefix("Question: ")
