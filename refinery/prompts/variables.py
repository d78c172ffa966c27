"""The variables of each prompt file, with their descriptions and sample values for trying a text."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from jinja2 import nodes
from jinja2.meta import find_undeclared_variables

from refinery.contract.records import Passage, Step, Turn
from refinery.prompts.files import SHIPPED, PromptFiles

_PASSAGE = Passage(id="p1", title="Lyon", text="Lyon is a city in France.")
_TURN = Turn(question="Where is Lyon?", reply="In France.")


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable's description, and a sample value in the form that runs fill in."""

    about: str
    value: Any

    @property
    def bare(self) -> Any:
        """The emptiest value that a run may fill in."""
        if self.value == "few":
            return "zero"
        return type(self.value)() if isinstance(self.value, list | bool | str) else self.value


_NUMBERED = Variable("pairs of a number and a passage", [(1, _PASSAGE)])
_JUDGED = Variable("what the model said about the knowledge, or nothing", "1: related")
_STEPS = [Step(action=action, text="Lyon", passages=[_PASSAGE]) for action in ("rewrite", "decompose", "disambiguate", "respond")]
_GUARDS = ("default", "d", "defined")
_VARIABLES = {
    "answer": Variable("an answer to the question", "France"),
    "answers": Variable("the gold answers", ["France"]),
    "asked": Variable("queries asked before", ["Where is Lyon?"]),
    "count": Variable("how many questions are wanted", 2),
    "examples": Variable('"few" or "zero", the recipe\'s option', "few"),
    "history": Variable("the turns before the question, each with `question` and `reply`", [_TURN]),
    "hypothesis": Variable("the statement to check", "Lyon is in France."),
    "information": Variable("statements found so far", ["Lyon is in France."]),
    "knowledge": _NUMBERED,
    "last": Variable("whether this is the last round", True),
    "missing": Variable("what is missing for an answer", "the country"),
    "more_knowledge": _NUMBERED,
    "more_relevance": _JUDGED,
    "must_answer": Variable("whether the model has to answer now", True),
    "passage": Variable("a passage, with `title` and `text`", _PASSAGE),
    "passages": Variable("passages, each with `title` and `text`", [_PASSAGE, _PASSAGE]),
    "premise": Variable("what the statement is checked against", "Lyon is a city in France."),
    "query": Variable("the question", "Where is Lyon?"),
    "question": Variable("the question", "Where is Lyon?"),
    "rationale": Variable("whether a short rationale is wanted", True),
    "relevance": _JUDGED,
    "several": Variable('how several answers are given: "joined", "lines" or "one"', "joined"),
    "steps": Variable("the steps so far, each with `action`, `text` and `passages`", _STEPS),
    "system_prompt": Variable("what the dataset told the assistant first, or nothing", "Be brief."),
    "sub_query": Variable("the query that was searched for, or nothing", "Lyon"),
    "thinking": Variable("the model's analysis, or nothing", "Lyon is named."),
}
# A variable that a prompt declares at its head, as `refinery prompts NAME` shows all: {# NAME: ABOUT, such as JSON -#}
_DECLARED = re.compile(r"^\{# (\w+): (.+), such as (.+) -#\}$", re.MULTILINE)


def variable(prompt: str, name: str) -> Variable:
    """The variable `name` of a prompt that ships: as the prompt, or one that it includes, declares it, or of the table."""
    return declared(prompt).get(name) or _VARIABLES[name]


@cache
def declared(prompt: str) -> dict[str, Variable]:
    """The variables that a prompt that ships declares at its head, and those of the prompts that it includes."""
    return {name: Variable(about, json.loads(value)) for name, about, value in _DECLARED.findall(SHIPPED.source(prompt))}


# How a text uses a variable: it shows the value; it only tests it, as a switch; or it works without it if a run does not fill it in.
Kind = Literal["shown", "tested", "guarded"]


@dataclass(frozen=True, slots=True)
class Use:
    """A text's use of a variable: its kind, the prompt file, and the line."""

    name: str
    prompt: str
    line: int
    kind: Kind


def uses(prompt: str, files: PromptFiles) -> list[Use]:
    """The variables that a prompt names without setting them, and those of the files that it includes."""
    tree = files.environment.parse(files.text(prompt))
    free = find_undeclared_variables(tree)
    own = [Use(node.name, prompt, node.lineno, kind) for node, kind in _names(tree) if node.name in free]
    return [*own, *(use for other in files.included(prompt) for use in uses(other, files))]


def variables(prompt: str, files: PromptFiles) -> dict[str, Kind]:
    """The variables of a prompt, in order, and how it uses each. Only those that it shows are required in a replacement."""
    found = dict[str, set[Kind]]()
    for use in uses(prompt, files):
        found.setdefault(use.name, set()).add(use.kind)
    return {name: next(kind for kind in ("guarded", "shown", "tested") if kind in kinds) for name, kinds in found.items()}


def _names(node: nodes.Node, kind: Kind = "shown") -> Iterator[tuple[nodes.Name, Kind]]:
    """Every variable that is read, and how it is used."""
    for field, child in _children(node):
        in_test = field == "test" and isinstance(node, nodes.If | nodes.CondExpr)
        guarded = isinstance(node, nodes.Filter | nodes.Test) and node.name in _GUARDS and field == "node"
        kind_there: Kind = "guarded" if guarded else "tested" if in_test else kind
        if isinstance(child, nodes.Name) and child.ctx == "load":
            yield child, kind_there
        yield from _names(child, kind_there)


def _children(node: nodes.Node) -> Iterator[tuple[str, nodes.Node]]:
    for field, value in node.iter_fields():
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, nodes.Node):
                yield field, child
