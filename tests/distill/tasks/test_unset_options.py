"""Without new options, tasks ask the same requests under the same store keys, and write the same rows, as before the options existed."""

import hashlib
import json

import pytest
from helpers.film_questions import CHAIN, changed

from distill.teacher.teacher import Teacher
from refinery.contract.records import Disambiguation, SubQuestion
from refinery.llms.served.endpoint import EndpointConfig

QUESTION = changed(decomposition=[SubQuestion(text="Dune >> director", answer="Maria Torvel", supporting=["dune"]), CHAIN[1]])
AMBIGUOUS = QUESTION.model_copy(
    update={
        "disambiguations": [Disambiguation(text="Who directed Dune?", answers=["Maria", "Torvel"]), Disambiguation(text="Born where?")],
        "supporting": None,
        "answers": ["Either."],
    }
)
CHOICE = QUESTION.model_copy(update={"choices": ["Oslo", "Lyon"], "answers": ["B"], "supporting": None})
HOPS = ["Who directed Dune?", "Where was Maria Torvel born?"]
STEPWISE = [{"action": "decompose", "text": HOPS[0]}, {"action": "rewrite", "text": HOPS[1]}, {"action": "answer", "text": "Lyon"}]
QUERIES = {"queries": HOPS}
SEARCH = {"search": True, "queries": HOPS}

CASES = {
    "stepwise": (QUESTION, "refinement", {}, STEPWISE),
    "stepwise_few": (QUESTION, "refinement", {"examples": "few"}, STEPWISE),
    "multi_hop": (QUESTION, "refinement", {"kind": "multi_hop"}, [QUERIES, {"answer": "Lyon"}]),
    "multi_hop_annotated": (QUESTION, "refinement", {"kind": "multi_hop", "by": "annotations"}, []),
    "ambiguous": (AMBIGUOUS, "refinement", {"kind": "ambiguous"}, [{"answer": "Lyon"}, {"answer": "Maria, or Lyon."}]),
    "multiple_choice": (CHOICE, "refinement", {"kind": "multiple_choice"}, [QUERIES, {"answer": "B"}]),
    "dialogue": (QUESTION, "refinement", {"kind": "dialogue"}, [SEARCH, {"answer": "In Lyon."}]),
    "instruction": (QUESTION, "refinement", {"kind": "instruction"}, [SEARCH, {"answer": "In Lyon."}]),
    "decomposition": (QUESTION, "decomposition", {"examples": "few"}, [{"sub_questions": HOPS}]),
    "decomposition_annotated": (QUESTION, "decomposition", {"by": "annotations"}, []),
    "relevance_annotated": (QUESTION, "relevance", {"by": "annotations"}, []),
    "relevance_list": (QUESTION, "relevance", {"swap": True, "examples": "few"}, [{"relevant": [2]}]),
    "relevance_each": (QUESTION, "relevance", {"judge": "each", "examples": "few"}, [{"label": "relevant"}]),
    "self_knowledge": (QUESTION, "self_knowledge", {"by": "teacher", "examples": "few"}, [{"answer": "yes"}]),
}
# Of the store keys of all requests, and of all rows without their provenance. Since then both prompts of relevance were worded anew, and
# the schemas of sub-questions and queries, which are part of the keys, end their lists; and a reading's
# short answers are quoted lines.
BEFORE = {
    "stepwise": ("f3666f221af8", "bef336ef48fa"),
    "stepwise_few": ("2f8fbcf02731", "bef336ef48fa"),
    "multi_hop": ("2db0dbbd5d62", "d3b00333e51b"),
    "multi_hop_annotated": ("e3b0c44298fc", "ca31cd20e400"),
    "ambiguous": ("2928ff0bf13c", "a3eb2ca1c25f"),
    "multiple_choice": ("b5d7ab297d1c", "6238689d3a9c"),
    "dialogue": ("a0340cceb545", "5ce800e8bcb0"),
    "instruction": ("7ecf9bd401c7", "5ce800e8bcb0"),
    "decomposition": ("eea116a837a1", "17fc1ebfb98b"),
    "decomposition_annotated": ("e3b0c44298fc", "dc72ea6b10d9"),
    "relevance_annotated": ("e3b0c44298fc", "14ef48ca6212"),
    "relevance_list": ("a92af5a3d6d3", "b6bbf0365ab7"),
    "relevance_each": ("7dcd71a3e722", "2c374053aaff"),
    "self_knowledge": ("a89c254fd1cf", "2dceb2049b2d"),
}


class KeepingTeacher:
    """A teacher that gives scripted replies, the last of them from then on, and remembers the store keys of its requests."""

    def __init__(self, replies):
        self.replies, self.keys = [json.dumps(reply) for reply in replies], []
        self._teacher = Teacher(EndpointConfig(model="scripted"), store=None, transport=None, budget=None)

    async def ask(self, prompt, schema, asked, *, rollout=0):
        self.keys.append(self._teacher.request((("user", str(prompt)),), schema, rollout).key)
        return schema.model_validate_json(self.replies.pop(0) if len(self.replies) > 1 else self.replies[0])


def digest(*parts):
    return hashlib.sha256(b"\n".join(parts)).hexdigest()[:12]


@pytest.mark.parametrize("case", CASES)
def test_requests_and_rows_are_those_of_before(label, case):
    question, task, options, replies = CASES[case]
    teacher = KeepingTeacher(replies)
    rows = label(task, question, {"teacher": teacher}, **options)
    written = [row.model_dump_json(exclude_none=True, exclude={"provenance"}).encode() for row in rows]
    assert (digest(*teacher.keys), digest(*written)) == BEFORE[case]
