"""The output of a decoder's module that runs alone (`refinery evaluate-modules`)."""

from refinery.contract.records import Record


class ModuleOutput(Record):
    """The output of a module that ran alone, in one trace step.

    `texts` were written by it; `cited` holds the ids of the passages that each text cites. `labels` are its judgments, True for the
    positive label, with their `probabilities` if it gives them. `given` lists the annotated sub-questions, numbered from 0, whose answers
    it received, and `step` is the one it was asked, None for the question itself. `unread` counts its replies that could not be read.

    `found` maps each kind of search text to the ids that each search returned, best first. `judged` is a judge's verdict on each text, or
    None where the judge's reply could not be read.
    """

    step: int | None = None
    given: list[int] = []
    texts: list[str] = []
    cited: list[list[str]] = []
    labels: list[bool] = []
    probabilities: list[float] = []
    unread: int = 0
    found: dict[str, list[list[str]]] = {}
    judged: list[bool | None] = []
