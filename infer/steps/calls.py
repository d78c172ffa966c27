"""What decoders declare of the calls that a question makes, and what these calls read and write in tokens.

Each decoder's `plan` states its arithmetic beside its algorithm. The fewest and the most are those of any question, but for steps whose
number a reply decides: these count as often as a reply usually asks for them, which the decoder's `plan` says.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from refinery.prompts.render import has_prompt, prompt_source
from refinery.runtime.forecast import Range, total

_CHARACTERS_PER_TOKEN = (8.0, 2.0)  # of English, in the vocabularies of models and in words: most, least
_FRAME_TOKENS = 60.0  # a chat template, with a system prompt of its own


@dataclass(frozen=True, slots=True)
class Limits:
    """What a recipe limits: passages per search (0 if nothing is searched), the tokens of an answer, and the roles that it names."""

    passages: int
    answer: int
    roles: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of a question in one `role`: how many (fewest, most), and what each reads and writes at most.

    A call reads the prompt file `prompt` (by default the one of the role's name) with the question, so many `passages`, and so many tokens
    of earlier replies (`replies`). It writes at most `writes` tokens: none where only probabilities are read. One that `continues` an
    earlier context may read nothing but a few tokens anew.
    """

    role: str
    count: Range
    writes: int = 0
    passages: int = 0
    replies: int = 0
    prompt: str | None = None
    continues: bool = False


@dataclass(frozen=True, slots=True)
class Texts:
    """How many characters questions and passages have: fewest, most."""

    question: Range
    passage: Range


@dataclass(frozen=True, slots=True)
class Planned:
    """Calls, tokens read and tokens written: of a question, or of several together."""

    calls: Range = (0, 0)
    read: Range = (0, 0)
    written: Range = (0, 0)

    def times(self, count: float) -> "Planned":
        """The same for each of `count` questions."""
        return Planned(*((low * count, high * count) for low, high in (self.calls, self.read, self.written)))


def planned(calls: Sequence[Calls], texts: Texts) -> Planned:
    """What the calls of a question read and write, together."""
    read = [_times(one.count, _read(one, texts)) for one in calls]
    written = [_times(one.count, (1 if one.writes else 0, one.writes)) for one in calls]
    return Planned(total([one.count for one in calls]), total(read), total(written))


def _read(calls: Calls, texts: Texts) -> Range:
    """Tokens that one call reads: at least the question, at most all of its prompt's file and everything that is filled in."""
    name = calls.prompt or calls.role
    file = len(prompt_source(name)) if has_prompt(name) else 0
    shortest, longest = _CHARACTERS_PER_TOKEN
    most = (file + texts.question[1] + calls.passages * texts.passage[1]) / longest + calls.replies + _FRAME_TOKENS
    return (1 if calls.continues else max(texts.question[0] / shortest, 1)), most


def _times(count: Range, each: Range) -> Range:
    return count[0] * each[0], count[1] * each[1]
