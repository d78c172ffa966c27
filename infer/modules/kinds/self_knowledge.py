"""Judges of self-knowledge: does the judge say that the model knows the answer to a question or sub-question, and does the model answer it?

The model's own closed-book answers are the gold (RA-ISF App. A.1), so its knowledge needs no annotation. An LLM judge says whether it knows
the answer itself (Sec. 5.5), which may differ.
"""

from collections.abc import Mapping, Sequence

from infer.modules.kinds.answers import asked_with_answers, by_line
from infer.modules.kinds.base import ModuleKind, unparsed
from infer.modules.kinds.gold import answers_of
from infer.modules.kinds.judge import judged_known, judged_the_same
from refinery.contract.records import Question
from refinery.contract.trace import TraceStep
from refinery.metrics.graded import Graded, graded_labels
from refinery.metrics.squad import exact_match


def _grade(question: Question, steps: Sequence[TraceStep]) -> Mapping[str, Graded]:
    return {line: _graded(question, some) for line, some in by_line(steps).items()}


def _graded(question: Question, steps: Sequence[TraceStep]) -> Graded:
    outputs = [step.output for step in steps if step.output]
    known = [bool(exact_match(output.texts[0].strip().partition("\n")[0], answers_of(question, output.step))) for output in outputs]
    scored = [(share, gold) for output, gold in zip(outputs, known, strict=True) for share in output.probabilities]
    found = graded_labels([(output.labels[0], gold) for output, gold in zip(outputs, known, strict=True)], scored=scored)
    return Graded(dict(found.counts) | {"unparsed": unparsed(outputs)} | judged_the_same(outputs), found.correct, scored)


SELF_KNOWLEDGE = ModuleKind("self_knowledge", "answers", lambda question: bool(question.answers), asked_with_answers, _grade, judged_known)
