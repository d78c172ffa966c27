"""The document that a passage belongs to."""

from refinery.contract.records import Passage


def document_of(passage: Passage) -> str:
    """The name of a passage's document: the file in its id, as `refinery passages` writes it (`guide.md#setup:3`), else its title or id.

    A file's name has a suffix. Other ids with a number, such as `wiki:81921`, say nothing about the document.
    """
    name, _, number = passage.id.rpartition(":")
    if "." not in name or not number.isdecimal():
        return passage.title or passage.id
    file, _, _ = name.rpartition("#")
    return file if "." in file else name  # a file's name may also contain a #, before its suffix
