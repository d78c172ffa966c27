"""Questions about a film and its director, one of each kind that a task labels, and what a trajectory says."""

from refinery.contract.records import Disambiguation, Passage, Question, SubQuestion

DUNE = Passage(id="dune", title="Dune", text="Dune is a film that Maria Torvel directed.")
TORVEL = Passage(id="torvel", title="Maria Torvel", text="Maria Torvel was born in Lyon.")
OSLO = Passage(id="oslo", title="Oslo", text="Oslo is a city where nobody directed films.")
CHAIN = [
    SubQuestion(text="Who directed Dune?", answer="Maria Torvel", supporting=["dune"]),
    SubQuestion(text="Where was #1 born?", answer="Lyon", supporting=["torvel"]),
]
QUESTION = Question(
    id="q",
    text="Where was the director of Dune born?",
    answers=["Lyon", "Lugdunum"],
    passages=[OSLO, DUNE, TORVEL],
    supporting=["dune", "torvel"],
    decomposition=CHAIN,
)
CHOICE = Question(
    id="c", text="Maria Torvel was born in", choices=["Oslo", "Lyon"], answers=["B"], passages=[OSLO, DUNE, TORVEL], dataset="arc"
)
TURN = Question(
    id="t",
    text="And where was she born?",
    history=["Who directed Dune?", "Maria Torvel."],
    answers=["Lyon, I think."],
    passages=[OSLO, DUNE, TORVEL],
)
READINGS = [
    Disambiguation(text="Who directed the film Dune?", answers=["Maria Torvel", "M. Torvel"]),
    Disambiguation(text="Who was born in Lyon?"),
]
AMBIGUOUS = Question(id="a", text="Who is it?", answers=["It may be either."], disambiguations=READINGS, passages=[OSLO, DUNE, TORVEL])
HOPS = ["Who directed Dune?", "Where was Maria Torvel born?"]


def changed(question=QUESTION, **values):
    return question.model_copy(update=values)


def told(trajectory):
    return [(step.action, step.text) for step in trajectory.steps]
