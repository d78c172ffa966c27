"""Split English text into sentences with a regular expression and a list of abbreviations.

It needs no download, but it is simpler than Punkt or pysbd: an abbreviation that is not listed splits a sentence, and a sentence that ends
in a listed one is joined with the next. Text in a script without spaces or capital letters is returned whole.
"""

import re

# A period, question mark or exclamation mark, closing quotes or brackets, white space, and then a character that can begin a sentence.
_BOUNDARY = re.compile(r"""(?<=[.!?])["'\u201d\u2019)\]]*\s+(?=["'\u201c\u2018(\[]*[A-Z0-9])""")
_ABBREVIATION = re.compile(
    r"""\b(?:(?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|Gen|Col|Capt|Lt|Sgt|Rev|Hon|Gov|Sen|Rep|No|Vol|vs|etc|cf|ca|approx|Inc|Ltd|Co|Corp
    |Jan|Feb|Mar|Apr|Aug|Sept|Sep|Oct|Nov|Dec|e\.g|i\.e|Ph\.D)|[A-Z](?:\.[A-Z])*)\.$""",
    re.VERBOSE,
)


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, in order and stripped; only the white space between them is lost."""
    sentences: list[str] = []
    start = 0
    for boundary in _BOUNDARY.finditer(text):
        # A closing quote belongs to the sentence that it closes.
        end = boundary.end() - len(boundary[0]) + len(boundary[0].rstrip())
        if not _ABBREVIATION.search(text[start : boundary.start()]):
            sentences.append(text[start:end].strip())
            start = boundary.end()
    return [sentence for sentence in (*sentences, text[start:].strip()) if sentence]
