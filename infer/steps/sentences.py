"""Split English text into sentences, by a regular expression and a list of abbreviations.

It needs no download, and it is no Punkt or pysbd: an abbreviation that is not listed splits a sentence, and a sentence that ends in a
listed one is joined with the next. Text in a script without spaces or capitals comes back whole.
"""

import re

# A full stop, question or exclamation mark, closing quotes or brackets, white space, and then what a sentence may open with.
_BOUNDARY = re.compile(r"""(?<=[.!?])["'\u201d\u2019)\]]*\s+(?=["'\u201c\u2018(\[]*[A-Z0-9])""")
_ABBREVIATION = re.compile(
    r"""\b(?:(?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|Gen|Col|Capt|Lt|Sgt|Rev|Hon|Gov|Sen|Rep|No|Vol|vs|etc|cf|ca|approx|Inc|Ltd|Co|Corp
    |Jan|Feb|Mar|Apr|Aug|Sept|Sep|Oct|Nov|Dec|e\.g|i\.e|Ph\.D)|[A-Z](?:\.[A-Z])*)\.$""",
    re.VERBOSE,
)


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, in order and stripped; nothing but white space between them is lost."""
    sentences: list[str] = []
    start = 0
    for boundary in _BOUNDARY.finditer(text):
        # A closing quote belongs to the sentence that it closes.
        end = boundary.end() - len(boundary[0]) + len(boundary[0].rstrip())
        if not _ABBREVIATION.search(text[start : boundary.start()]):
            sentences.append(text[start:end].strip())
            start = boundary.end()
    return [sentence for sentence in (*sentences, text[start:].strip()) if sentence]
