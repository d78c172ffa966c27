"""A selector for RQ-RAG's trees: whether a path ends in a right answer, the problem that Sec. 4.3 leaves open."""

from typing import Any

from refinery.contract.formats import evidence_text
from refinery.contract.records import SelectionLabel, Step, Trajectory
from refinery.prompts.render import Prompt, render_prompt
from refinery.tasks.base import Card, Judge, edit_steps
from refinery.text import OwnLines, one_line

RIGHT, WRONG = " right", " wrong"
_GENERATOR = "zorowin123/rq_rag_llama2_7B"  # the authors' release


def selection_prompt(path: Trajectory) -> Prompt:
    """The prompt of a selector for a tree's path. It answers RIGHT or WRONG.

    Each query, passage and answer is one line, so that none of them can fake a search or another answer.
    """
    *searches, answer = path.steps
    found = [OwnLines(evidence_text(step.passages, format="consistent")) for step in searches]
    shown = [{"query": one_line(step.text), "evidence": text} for step, text in zip(searches, found, strict=True)]
    return render_prompt("selection", question=one_line(path.question), searches=shown, answer=one_line(answer.text)).paired(_pair)


def _pair(values: dict[str, Any]) -> tuple[str, str]:
    """The question with the proposed answer, and the searches with their results."""
    searches = "".join(f"Search: {search['query']}\n{search['evidence']}" for search in values["searches"])
    return f"{values['question']}\n{values['answer']}", searches.rstrip()


def _sample(text: str) -> SelectionLabel:
    path = Trajectory(question_id="1", question="Who?", steps=[Step(action="answer", text=text)])
    return SelectionLabel(question_id="1", question="Who?", path=path, label="right")


TASK = Judge(
    name="selection",
    record=SelectionLabel,
    labels=(WRONG, RIGHT),
    prompt=lambda label: selection_prompt(label.path),
    sample=_sample,
    edit_passages=lambda label, edit: label.model_copy(update={"path": edit_steps(label.path, edit)}),
    card=lambda recipe: Card(
        purpose="Judges whether a path of an RQ-RAG tree ends in a right answer (the open problem of RQ-RAG's Sec. 4.3).",
        program="""\
from refinery.tasks.selection import TASK, selection_prompt
found = [Passage(id="p1", title="Lyon", text="Lyon is a city in France.")]
steps = [Step(action="rewrite", text="country of Lyon", passages=found), Step(action="answer", text="France")]
path = Trajectory(question_id="q1", question="Which country is Lyon in?", steps=steps)
print(asyncio.run(llm.context(selection_prompt(path)).label_probs(TASK.labels)))""",
        loop_is="In RQ-RAG's loop, together with a generator:",
        loop=f"""\
decoder: rq_rag
llm: {{base: {_GENERATOR}}}
sub_models: {{selection: {{base: {{repository}}}}}}
options: {{selection: learned}}""",
    ),
)
