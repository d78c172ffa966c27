"""The few lines that a stage prints at its end. All numbers are in `metrics.json`."""

from collections.abc import Mapping, Sequence

from refinery.text import one_line, printable


def summary(rows: Sequence[tuple[str, str]]) -> str:
    """One line per (name, text), with the texts below each other. Rows without text are left out."""
    shown = [(name, text) for name, text in rows if text]
    width = max(len(name) for name, _ in shown)
    return "\n".join(f"{name:{width}}  {printable(one_line(text))}" for name, text in shown)


def counted(counts: Mapping[str, int]) -> str:
    """`train 224, test 30`, the most frequent first."""
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))


def dollars(cost_usd: float | None) -> str:
    """An amount in dollars, or a note that the price is unknown."""
    return "price unknown" if cost_usd is None else f"${cost_usd:,.2f}"
