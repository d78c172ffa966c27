"""The demo's steps: each runs a recipe under recipes/demo, with the demo's own paths. Dependencies between steps follow from the paths."""

from pathlib import Path

from refinery.project.project import Step
from refinery.runtime.recipes.shipped_files import DEMO_CHECKPOINT, shipped

Steps = dict[str, Step]

BASE = shipped(DEMO_CHECKPOINT)
SUB_MODELS = ("self_knowledge", "relevance", "decomposition")
# Prompt-only methods whose students are trained on their traces.
DISTILLED = ("re_thinking", "migres")
# Decoders that prompt the teacher, by their names in the table.
PROMPTED = {"direct_teacher": "direct", "rag_teacher": "rag"} | {
    decoder: decoder
    for decoder in (
        "alce chain_of_note chain_of_thought ircot iter_retgen least_to_most migres plan_and_solve re_thinking react self_ask"
        " self_criticism"
    ).split()
}


def core_steps(seed: int, output: Path, port: int) -> Steps:
    """The three stages for RA-ISF and RQ-RAG, and plain retrieval for comparison."""
    data, base = output / "data", f"base={BASE}"
    questions = f"questions=[{data}/train.jsonl, {data}/validation.jsonl]"
    passages, teacher = _passages(output), f"teacher.base_url={_url(port)}"
    steps = Steps()
    # The longest chain, refinement and its tree, comes first. The longest of the other trainings is last, so that both run beside it.
    for task in ("refinement", "relevance", "decomposition", "self_knowledge"):
        asks = (f"target.{base}",) if task == "self_knowledge" else (teacher,)
        searches = (passages,) if task in ("refinement", "relevance") else ()
        labels = output / "labels" / task
        steps |= _step("distill", task, questions, f"output_dir={labels}", *asks, *searches)
        held_out = (f"validation=[{labels}/validation.jsonl]",) if task in SUB_MODELS else ()
        steps |= _train(task, seed, output, *held_out)
    adapters = tuple(f"llm.adapters.{task}={output}/models/{task}" for task in SUB_MODELS)
    return {
        **steps,
        **_infer("rq_rag", output, f"llm.base={output}/models/refinement", passages),
        **_infer("ra_isf", output, f"llm.{base}", *adapters, passages),
        **_infer("ra_isf_paper", output, f"llm.{base}", *adapters, passages),
        **_infer("rag", output, f"llm.{base}", passages),
        **_infer("direct", output, f"llm.{base}"),
    }


def hard_steps(seed: int, output: Path, port: int) -> Steps:
    """RQ-RAG in the hard world: labels for a quarter of the training questions, the generator, and its answers by path and by tree."""
    labels, passages = output / "labels" / "refinement", _passages(output)
    questions = f"questions=[{output}/data/train.jsonl, {output}/data/validation.jsonl]"
    generator = f"llm.base={output}/models/refinement"
    hard = {"recipe": "refinement_hard"}
    return {
        **_step("distill", "refinement", questions, f"output_dir={labels}", f"teacher.base_url={_url(port)}", passages, **hard),
        **_train("refinement", seed, output, **hard),
        **_infer("rq_rag_adaptive", output, generator, passages),
        **_infer("rq_rag", output, generator, passages, recipe="rq_rag_hard"),
        **_infer("rag", output, f"llm.base={BASE}", passages),
        **_infer("direct", output, f"llm.base={BASE}"),
    }


def method_steps(seed: int, output: Path, port: int) -> Steps:
    """Every other decoder: the prompt-only ones with the teacher, students trained on their traces, and RQ-RAG with a learned selector."""
    return _student_steps(seed, output, port) | _selector_steps(seed, output) | _prompted_steps(output, port)


def _student_steps(seed: int, output: Path, port: int) -> Steps:
    """The teacher's traces of the training questions, the rows that they give, the student, and its answers."""
    train, steps = f"questions=[{output}/data/train.jsonl]", Steps()
    for method in DISTILLED:
        traces, labels = output / "traces" / method, output / "labels" / method
        overrides = (train, f"output_dir={traces}", f"endpoint.base_url={_url(port)}", _passages(output))
        steps |= {
            **_step("infer", f"{method}_traces", *overrides),
            **_step("distill", method, train, f"runs=[{traces}]", f"output_dir={labels}"),
            **_train(method, seed, output),
            **_infer(f"{method}_student", output, f"llm.base={output}/models/{method}", _passages(output)),
        }
    return steps


def _selector_steps(seed: int, output: Path) -> Steps:
    """Trees of training questions, labels for their paths, the selector, and its runs on the held-out and the confusable questions."""
    generator, train = f"llm.base={output}/models/refinement", f"questions=[{output}/data/confusable_train.jsonl]"
    traces, labels = output / "traces" / "selection", output / "labels" / "selection"
    selector = f"sub_models.selection.base={output}/models/selection"
    # The weight that did best on the validation world's confusable questions (seed 0): EM 96.7; 0 gave 96.7, 1 88.9, the ensemble 78.9.
    trusting = "options.generator_weight=0.1"
    confusable = (f"questions=[{output}/data/confusable_test.jsonl]", f"output_dir={output}/confusable", trusting)
    return {
        **_step("infer", "selection_trees", train, f"output_dir={traces}", generator, _passages(output)),
        **_step("distill", "selection", train, f"runs=[{traces}]", f"output_dir={labels}"),
        **_train("selection", seed, output),
        **_infer("rq_rag_learned", output, generator, selector, _passages(output)),
        **_step("infer", "confusable", *confusable, generator, selector, _passages(output), recipe="rq_rag_learned"),
    }


def _prompted_steps(output: Path, port: int) -> Steps:
    on_teacher = (f"endpoint.base_url={_url(port)}", _passages(output))
    steps = Steps()
    for name, decoder in PROMPTED.items():
        own = shipped(f"recipes/demo/infer/{name}.yaml").exists()
        named = () if own else (f"decoder={decoder}", f"name={name}")
        steps |= _infer(name, output, *named, *on_teacher, recipe="" if own else "prompted")
    labels = output / "labels" / "self_knowledge" / "train.jsonl"
    return {
        **steps,
        **_infer("skr", output, f"llm.base={BASE}", f"options.labels={labels}", _passages(output)),
        **_infer("replug", output, f"llm.base={BASE}", _passages(output)),
    }


def _train(task: str, seed: int, output: Path, *overrides: str, recipe: str = "") -> Steps:
    labels, model = output / "labels" / task / "train.jsonl", output / "models" / task
    return _step("train", task, f"base={BASE}", f"data=[{labels}]", *overrides, f"output_dir={model}", f"seed={seed}", recipe=recipe)


def _infer(name: str, output: Path, *overrides: str, recipe: str = "") -> Steps:
    """A decoder over the held-out questions."""
    return _step("infer", name, f"questions=[{output}/data/test.jsonl]", f"output_dir={output}/infer/{name}", *overrides, recipe=recipe)


def _step(stage: str, name: str, *overrides: str, recipe: str = "") -> Steps:
    """A step with its name and overrides. The recipe has the same name unless another is given."""
    path = shipped(f"recipes/demo/{stage}/{recipe or name}.yaml")
    return {f"{stage}_{name}": Step(command=[stage, str(path), *overrides])}


def _passages(output: Path) -> str:
    return f"retriever.passages={output}/data/passages.jsonl"


def _url(port: int) -> str:
    return f"http://127.0.0.1:{port}/v1"
