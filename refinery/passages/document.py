"""Which document a passage belongs to."""

from refinery.contract.records import Passage


def document_of(passage: Passage) -> str:
    """The name of a passage's document: its id before the section and the last `:number` (`guide.md#setup:3`), else its title or id."""
    name, _, number = passage.id.rpartition(":")
    if not name or not number.isdecimal():
        return passage.title or passage.id
    file, _, _ = name.rpartition("#")
    return file if "." in file else name  # the name of a file may contain a # too, before its suffix
