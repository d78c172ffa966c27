"""Which document a passage belongs to."""

from refinery.contract.records import Passage


def document_of(passage: Passage) -> str:
    """The name of a passage's document: its id before the last `:number` (`guide.md:3`), else its title, else its id."""
    name, _, number = passage.id.rpartition(":")
    if name and number.isdecimal():
        return name
    return passage.title or passage.id
