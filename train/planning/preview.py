"""`refinery train RECIPE --preview N`: the first rows token by token, trained, weighted or masked, without loading the model."""

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from refinery.contract.segments import SegmentKind
from refinery.contract.tokenizer import Tokenizer
from refinery.llms.weights.checkpoint import load_tokenizer
from refinery.text import printable
from train.families.vocabulary import control_tokens_of, extend_tokenizer
from train.method import load_family
from train.recipe import TrainRecipe
from train.rows.data import training_records
from train.rows.readable_rows import Token, row_tokens, token_parts, trained_label

_STYLES = {"masked": "dim", "trained": "green", "weighted": "bold magenta"}
_OPEN, _CLOSE = "⟦", "⟧"


def preview(recipe: TrainRecipe, count: int, console: Console) -> None:
    """Print the first `count` rows and, of each kind of token, how many there are and how many train.

    In color on a terminal; elsewhere, trained text is in ⟦⟧, with its weight if that is not 1. Raises RecordError as training would.
    """
    tokenizer, _ = extend_tokenizer(load_tokenizer(recipe.base, recipe.chat_template), control_tokens_of(recipe))
    records = training_records(recipe)[:count]
    rows, overlong = load_family(recipe).encode_rows(records, recipe, tokenizer)
    in_colour = console.is_terminal and not console.no_color
    if in_colour:
        console.print(Text.assemble(*(part for name, style in _STYLES.items() for part in ((name, style), "  "))))
    for number, row in enumerate(rows[:count], 1):
        tokens = row_tokens(row, recipe)
        trained = sum(is_target for _, _, is_target in tokens)
        title = f"--- row {number}: {len(tokens):,} tokens, {trained:,} trained ({trained / len(tokens):.1%})"
        label = trained_label(row, recipe)
        for part in (
            Text(printable(title + (f", trained label: {label}" if label else ""))),
            _painted(tokens, recipe, tokenizer, in_colour=in_colour),
            Text(_counts(tokens, recipe)),
        ):
            console.print(part, soft_wrap=True)
    what_was_done = ", ".join(f"{name} {number}" for name, number in overlong.items())
    summary = f"max_length {recipe.max_length:,}, overlong: {recipe.overlong}; of the first {len(records)} records: {what_was_done}"
    console.print(Text(summary), soft_wrap=True)


def _painted(tokens: Sequence[Token], recipe: TrainRecipe, tokenizer: Tokenizer, *, in_colour: bool) -> Text:
    painted = Text()
    for decoded, kind, trained in token_parts(tokens, tokenizer):
        text = _visible(decoded)
        weight = recipe.loss_weight(kind)
        if in_colour:
            painted.append(text, _STYLES["masked" if not trained else "trained" if weight == 1 else "weighted"])
        else:
            times = "" if weight == 1 else f"x{weight:g}"
            painted.append(f"{_OPEN}{text}{_CLOSE}{times}" if trained else text)
    return painted


def _visible(text: str) -> str:
    """The text with terminal control characters and our own marks escaped, because it comes from outside."""
    return printable(text).replace(_OPEN, ascii(_OPEN)[1:-1]).replace(_CLOSE, ascii(_CLOSE)[1:-1])


def _counts(tokens: Sequence[Token], recipe: TrainRecipe) -> str:
    found: Counter[SegmentKind] = Counter(kind for _, kind, _ in tokens)
    trained: Counter[SegmentKind] = Counter(kind for _, kind, is_target in tokens if is_target)
    lines = [f"{'kind':<14}{'tokens':>7}{'trained':>9}{'weight':>8}"]
    for kind, number in found.items():
        weight = f"{recipe.loss_weight(kind):g}" if trained[kind] else "-"
        lines.append(f"{kind:<14}{number:>7,}{trained[kind]:>9,}{weight:>8}")
    return "\n".join(lines) + "\n"
