"""Text from outside as a terminal may be shown it: passages, questions, names, replies, a server's words.

Where rich prints it, it goes into a `rich.text.Text`, which reads no markup.
"""

import logging
import unicodedata

# Control characters move the cursor and clear the screen, format characters turn the direction of what is read; neither can be seen.
_STEERS = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_KEPT = "\n\t\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}"  # the last two belong to the spelling of Persian, Hindi and others


def printable(text: str) -> str:
    """The text with what could steer a terminal written out, such as `\\x1b`. Lines and tabs stay."""
    if text.isprintable():
        return text
    return "".join(ascii(letter)[1:-1] if unicodedata.category(letter) in _STEERS and letter not in _KEPT else letter for letter in text)


class PrintableFormatter(logging.Formatter):
    """Log lines, which name questions and quote servers."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
        return printable(super().format(record))
