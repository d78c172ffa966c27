"""A scripted retriever with memory, for tests."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from refinery.contract.records import Passage, Question
from refinery.retrievers.base import Hit, Retriever


@dataclass(slots=True)
class FakeRetriever(Retriever):
    """A `Retriever` that finds `script(query)`, best first. `calls` records the queries in order."""

    script: Callable[[str], Sequence[Passage]]
    calls: list[str] = field(default_factory=list)

    async def search(self, query: str, *, k: int, question: Question | None = None) -> list[Hit]:
        """See `Retriever.search`; the score of the n-th hit is 1 / n."""
        self.calls.append(query)
        return [Hit(passage, 1 / position) for position, passage in enumerate(self.script(query)[:k], 1)]
