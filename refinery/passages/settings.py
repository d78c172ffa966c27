"""How documents are cut into passages. The same settings give the same passages and ids, so they are stored beside the passages."""

from pydantic import Field

from refinery.contract.records import Record
from refinery.errors import RecordError


class SplitSettings(Record):
    """The size of a passage and how much of it the next one repeats, in words."""

    words_per_passage: int = Field(default=100, description="maximum words of a passage (DPR Sec. 4.1)", ge=1)
    overlap_words: int = Field(default=0, description="words at the end of a passage that the next one repeats", ge=0)

    def __str__(self) -> str:
        """The settings in words, for messages."""
        return f"{self.words_per_passage} words, overlap {self.overlap_words}"


DEFAULT_SETTINGS = SplitSettings()


def checked_settings(words_per_passage: int, overlap_words: int) -> SplitSettings:
    """Settings from a command line. Raises RecordError for values that cannot cut a document."""
    if words_per_passage < 1:
        raise RecordError(f"--words {words_per_passage}: a passage needs at least one word. Give a number such as 100.")
    if not 0 <= overlap_words <= words_per_passage // 2:
        raise RecordError(f"--overlap {overlap_words}: give 0 to {words_per_passage // 2}, at most half of a passage's words.")
    return SplitSettings(words_per_passage=words_per_passage, overlap_words=overlap_words)
