"""Find pairs of passages that a question can lead through: both name one thing, and few other passages do.

A name is a span of capitalized words, or the title of a passage. The rarer it is, the surer both passages mean the same thing, and the less
a question about it can be answered from elsewhere.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from distill.steps.questions.proper_names import SENTENCE_STARTS, Name, names_in, spans_in, words_of
from refinery.contract.records import Passage
from refinery.passages.document import document_of
from refinery.unspaced import count_words

# Names in more passages are those of countries, prizes and wars, which link everything with everything. A name that no passage has as its
# title must be rarer still: otherwise it is often that of an army, a university or a publisher, which both passages mention in passing.
_MOST_MENTIONING_TITLE, _MOST_MENTIONING = 10, 3
_FEWEST_WORDS = 6  # shorter passages are the ends of documents, such as "of the new British Raj."


@dataclass(frozen=True, slots=True)
class Link:
    """Two passages and a name in both. The first mentions it, and the second says more about it."""

    first: Passage
    second: Passage
    name: str


def linked_passages(passages: Sequence[Passage], *, links_per_passage: int) -> Iterator[Link]:
    """The links that start from each passage: first to passages with the name as title, then by the rarest names, in the order of mention.

    Two passages are linked once. Passages of one document are not linked, because they are about one thing anyway, unless there is only one
    document; then those that do not follow each other are. A parenthesized suffix of a title is ignored. Time and memory are linear in the
    number of passages.
    """
    return _Linker(passages).links(links_per_passage)


class _Linker:
    def __init__(self, passages: Sequence[Passage]) -> None:
        self._passages = passages
        self._documents = [document_of(passage) for passage in passages]
        self._is_one_document = len(set(self._documents)) == 1
        self._titles = [_title_name(passage) for passage in passages]
        self._titled: dict[Name, list[int]] = {}
        for place, title in enumerate(self._titles):
            self._titled.setdefault(title, []).append(place)
        for word in ((), *((word.capitalize(),) for word in SENTENCE_STARTS)):  # "This", the song, is also how sentences begin
            self._titled.pop(word, None)
        self._lengths = sorted({len(title) for title in self._titled})
        self._mentioned = [self._names(passage.text) for passage in passages]
        self._mentioning: dict[Name, list[int]] = {}
        for place, names in enumerate(self._mentioned):
            for name in names:
                self._mentioning.setdefault(name, []).append(place)

    def links(self, most: int) -> Iterator[Link]:
        linked: set[frozenset[int]] = set()
        for place, passage in enumerate(self._passages):
            names: dict[int, Name] = {}
            for name in sorted(self._mentioned[place], key=self._rank):
                for other in self._others(place, name):
                    names.setdefault(other, name)
            new = [other for other in names if frozenset((place, other)) not in linked][:most]
            linked.update(frozenset((place, other)) for other in new)
            yield from (Link(passage, self._passages[other], " ".join(names[other])) for other in new)

    def _rank(self, name: Name) -> tuple[bool, int]:
        """Titles come first, then names that few passages mention."""
        return name not in self._titled, len(self._mentioning[name])

    def _others(self, place: int, name: Name) -> list[int]:
        """The passages to which a name leads from the one at `place`."""
        about, mentioning = self._titled.get(name, []), self._mentioning[name]
        if len(mentioning) > (_MOST_MENTIONING_TITLE if about else _MOST_MENTIONING):
            return []
        others = about or [other for other in mentioning if self._says_more(other, place, name)]
        return [other for other in others if not self._near(place, other, name)]

    def _says_more(self, other: int, place: int, name: Name) -> bool:
        """Whether the passage at `other` mentions the name earlier in its text than the one at `place`, as what it is about more likely."""
        positions = [(self._passages[at].text.find(name[0]), at) for at in (other, place)]
        return positions[0] < positions[1]

    def _near(self, place: int, other: int, name: Name) -> bool:
        """Whether the passages are about one thing: they are of one document, or their titles have the name or a part of it in common."""
        one, two = self._titles[place], self._titles[other]
        if self._documents[place] == self._documents[other]:
            return not self._is_one_document or abs(place - other) <= 1
        return bool(one) and (one == two or set(name) <= set(one) or (name != two and not set(name).isdisjoint({*one} & {*two})))

    def _names(self, text: str) -> dict[Name, None]:
        """The names that a text mentions, titles first, in the order of mention."""
        if count_words(text) < _FEWEST_WORDS:
            return {}
        return dict.fromkeys([*spans_in(text, self._titled, self._lengths), *names_in(text)])


def _title_name(passage: Passage) -> Name:
    return tuple(words_of(re.sub(r"\s*\([^()]*\)\s*$", "", passage.title)))
