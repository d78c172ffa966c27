"""How to run a pushed model, as commands that can be pasted into an empty folder."""

from collections.abc import Iterable
from typing import Any

from refinery.reporting.markdown import code_block

_SETUP = """\
pip install rag-refinery
printf '%s\\n' '{"id": "p1", "title": "Lyon", "text": "Lyon is a city in France."}' > passages.jsonl
printf '%s\\n' '{"id": "q1", "text": "Which country is Lyon in?", "answers": ["France"]}' > questions.jsonl
cat > loop.yaml <<'END'"""
_LOOP = """\
questions: [questions.jsonl]
output_dir: runs/loop
retriever: {{passages: passages.jsonl}}
passages_per_query: {passages}
max_new_tokens: 32
END
refinery infer loop.yaml
refinery view runs/loop"""
_JUDGE = """\
pip install rag-refinery
python - <<'END'
import asyncio
from refinery.llms.build import ModelConfig, build_llm
from refinery.contract.records import Passage, Step, Trajectory
from refinery.tasks.sub_models import JUDGE_LABELS, decomposition_prompt, knowledge_prompt, relevance_prompt, selection_prompt

llm = build_llm(ModelConfig(base="{repository}"))
{read}
END"""
_GENERATOR = "zorowin123/rq_rag_llama2_7B"  # the authors' release
_READS = {
    "self_knowledge": (
        'context = llm.context(knowledge_prompt("Which country is Lyon in?"))\n'
        'print(asyncio.run(context.label_probs(JUDGE_LABELS["self_knowledge"])))'
    ),
    "relevance": (
        'passage = Passage(id="p1", title="Lyon", text="Lyon is a city in France.")\n'
        'context = llm.context(relevance_prompt("Which country is Lyon in?", passage))\n'
        'print(asyncio.run(context.label_probs(JUDGE_LABELS["relevance"])))'
    ),
    "selection": (
        'found = [Passage(id="p1", title="Lyon", text="Lyon is a city in France.")]\n'
        'steps = [Step(action="rewrite", text="country of Lyon", passages=found), Step(action="answer", text="France")]\n'
        'path = Trajectory(question_id="q1", question="Which country is Lyon in?", steps=steps)\n'
        'print(asyncio.run(llm.context(selection_prompt(path)).label_probs(JUDGE_LABELS["selection"])))'
    ),
    "decomposition": (
        'context = llm.context(decomposition_prompt("Is Lyon in the country that won the 2018 World Cup?"))\n'
        "print(asyncio.run(context.generate(max_new_tokens=64)).text)"
    ),
    "traces": (
        'context = llm.context("Question: Which country is Lyon in?\\nAnswer:")  # in training, a prompt of the method that was distilled\n'
        "print(asyncio.run(context.generate(max_new_tokens=64)).text)"
    ),
}


def loop_snippet(recipe: dict[str, Any], repository: str) -> Iterable[str]:
    """The loop around this model on one question and one passage of your own; for a whole sub-model, the sub-model alone."""
    if recipe["task"] in ("refinement", "preference"):
        options = f"{{max_depth: 2, format: {recipe['format']}, system_prompt: {recipe['system_prompt']}}}"
        model = f"decoder: rq_rag\nllm: {{base: {repository}}}\noptions: {options}"
        yield from _bash(f"{_SETUP}\n{model}\n{_LOOP.format(passages=3)}")
        return
    yield "The student alone:" if recipe["task"] == "traces" else "The sub-model alone:"
    yield ""
    yield from _bash(_JUDGE.format(repository=repository, read=_READS[recipe["task"]]))
    if recipe["task"] == "selection":
        yield "In RQ-RAG's loop, beside a generator:"
        yield ""
        roles = f"sub_models: {{selection: {{base: {repository}}}}}\noptions: {{selection: learned}}"
        model = f"decoder: rq_rag\nllm: {{base: {_GENERATOR}}}\n{roles}"
        yield from _bash(f"{_SETUP}\n{model}\n{_LOOP.format(passages=3)}")
    elif recipe["task"] == "traces":
        yield "In its method's loop it takes the teacher's place: `llm: {base: " + repository + "}` beside the method's own `decoder`."
        yield ""
    elif recipe["strategy"] != "full" and recipe["family"] == "causal":
        yield "In RA-ISF's loop. The base model plays the roles without an adapter; add yours beside this one:"
        yield ""
        model = f"decoder: ra_isf\nllm:\n  base: {recipe['base']}\n  adapters:\n    {recipe['task']}: {repository}"
        yield from _bash(f"{_SETUP}\n{model}\n{_LOOP.format(passages=5)}")


def _bash(text: str) -> list[str]:
    return code_block(text, "bash")
