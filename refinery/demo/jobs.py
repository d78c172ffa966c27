"""The stage runs of the demo: what each needs done before it, and the paths that it is given over its recipe under recipes/demo."""

from dataclasses import dataclass
from pathlib import Path

from refinery.runtime.shipped import DEMO_CHECKPOINT, shipped

BASE = shipped(DEMO_CHECKPOINT)
SUB_MODELS = ("self_knowledge", "relevance", "decomposition")
# Prompt-only methods whose students are trained on their traces.
DISTILLED = ("re_thinking", "migres")
# Decoders with the teacher behind their prompts, by their name in the table.
PROMPTED = {"direct_teacher": "direct", "rag_teacher": "rag"} | {
    decoder: decoder
    for decoder in (
        "alce chain_of_note chain_of_thought ircot iter_retgen least_to_most migres plan_and_solve re_thinking react self_ask"
        " self_criticism"
    ).split()
}


@dataclass(frozen=True, slots=True)
class Job:
    """One stage run: its recipe under recipes/demo, what must be done before it, and its overrides."""

    name: str
    needs: tuple[str, ...]
    overrides: tuple[str, ...]
    recipe: str = ""  # where it is not the name's own


def core_jobs(seed: int, output: Path, port: int) -> list[Job]:
    """The three stages for RA-ISF and RQ-RAG, and retrieval alone beside them; the ones that most waits for first."""
    data, base = output / "data", f"base={BASE}"
    questions = f"questions=[{data}/train.jsonl, {data}/validation.jsonl]"
    passages, teacher = _passages(output), f"teacher.base_url={_url(port)}"
    jobs = []
    for task in ("refinement", "relevance", "self_knowledge", "decomposition"):
        asks = (f"target.{base}",) if task == "self_knowledge" else (teacher,)
        searches = (passages,) if task in ("refinement", "relevance") else ()
        labels = output / "labels" / task
        jobs.append(Job(f"distill/{task}", (), (questions, f"output_dir={labels}", *asks, *searches)))
        held_out = (f"validation=[{labels}/validation.jsonl]",) if task in SUB_MODELS else ()
        jobs.append(_train_job(task, seed, output, *held_out))
    adapters = tuple(f"llm.adapters.{task}={output}/models/{task}" for task in SUB_MODELS)
    trained = tuple(f"train/{task}" for task in SUB_MODELS)
    return [
        *jobs,
        _infer_job("rq_rag", output, f"llm.base={output}/models/refinement", passages, needs=("train/refinement",)),
        _infer_job("ra_isf", output, f"llm.{base}", *adapters, passages, needs=trained),
        _infer_job("ra_isf_paper", output, f"llm.{base}", *adapters, passages, needs=trained),
        _infer_job("rag", output, f"llm.{base}", passages),
        _infer_job("direct", output, f"llm.{base}"),
    ]


def method_jobs(seed: int, output: Path, port: int) -> list[Job]:
    """Every other decoder: the prompt-only ones on the teacher, the students of their traces, RQ-RAG with a learned selector."""
    return [*_student_jobs(seed, output, port), *_selector_jobs(seed, output), *_prompted_jobs(output, port)]


def _student_jobs(seed: int, output: Path, port: int) -> list[Job]:
    """The teacher's traces of the training questions, the rows that they give, the student, and its answers."""
    train, jobs = f"questions=[{output}/data/train.jsonl]", []
    for method in DISTILLED:
        traces, labels = output / "traces" / method, output / "labels" / method
        overrides = (train, f"output_dir={traces}", f"endpoint.base_url={_url(port)}", _passages(output))
        jobs += [
            Job(f"infer/{method}_traces", (), overrides),
            Job(f"distill/{method}", (f"infer/{method}_traces",), (train, f"runs=[{traces}]", f"output_dir={labels}")),
            _train_job(method, seed, output),
            _infer_job(f"{method}_student", output, f"llm.base={output}/models/{method}", _passages(output), needs=(f"train/{method}",)),
        ]
    return jobs


def _selector_jobs(seed: int, output: Path) -> list[Job]:
    """Trees of training questions, their paths labelled, the selector, and with it the held-out questions and confusable ones."""
    generator, train = f"llm.base={output}/models/refinement", f"questions=[{output}/data/confusable_train.jsonl]"
    traces, labels = output / "traces" / "selection", output / "labels" / "selection"
    selector, trained = f"sub_models.selection.base={output}/models/selection", ("train/refinement", "train/selection")
    # The weight that did best on the validation world's confusable questions (seed 0): EM 96.7; 0 gave 96.7, 1 88.9, the ensemble 78.9.
    trusting = "options.generator_weight=0.1"
    confusable = (f"questions=[{output}/data/confusable_test.jsonl]", f"output_dir={output}/confusable", trusting)
    return [
        Job("infer/selection_trees", ("train/refinement",), (train, f"output_dir={traces}", generator, _passages(output))),
        Job("distill/selection", ("infer/selection_trees",), (train, f"runs=[{traces}]", f"output_dir={labels}")),
        _train_job("selection", seed, output),
        _infer_job("rq_rag_learned", output, generator, selector, _passages(output), needs=trained),
        Job("infer/confusable", trained, (*confusable, generator, selector, _passages(output)), "infer/rq_rag_learned"),
    ]


def _prompted_jobs(output: Path, port: int) -> list[Job]:
    on_teacher = (f"endpoint.base_url={_url(port)}", _passages(output))
    jobs = []
    for name, decoder in PROMPTED.items():
        own = shipped(f"recipes/demo/infer/{name}.yaml").exists()
        named = () if own else (f"decoder={decoder}", f"name={name}")
        jobs.append(_infer_job(name, output, *named, *on_teacher, recipe="" if own else "infer/prompted"))
    labels = output / "labels" / "self_knowledge" / "train.jsonl"
    return [
        *jobs,
        _infer_job("skr", output, f"llm.base={BASE}", f"options.labels={labels}", _passages(output), needs=("distill/self_knowledge",)),
        _infer_job("replug", output, f"llm.base={BASE}", _passages(output)),
    ]


def _train_job(task: str, seed: int, output: Path, *overrides: str) -> Job:
    labels = output / "labels" / task / "train.jsonl"
    given = (f"base={BASE}", f"data=[{labels}]", *overrides, f"output_dir={output}/models/{task}", f"seed={seed}")
    return Job(f"train/{task}", (f"distill/{task}",), given)


def _infer_job(name: str, output: Path, *overrides: str, needs: tuple[str, ...] = (), recipe: str = "") -> Job:
    """A decoder over the held-out questions."""
    return Job(f"infer/{name}", needs, (f"questions=[{output}/data/test.jsonl]", f"output_dir={output}/infer/{name}", *overrides), recipe)


def _passages(output: Path) -> str:
    return f"retriever.passages={output}/data/passages.jsonl"


def _url(port: int) -> str:
    return f"http://127.0.0.1:{port}/v1"
