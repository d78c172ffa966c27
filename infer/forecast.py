"""How many questions a run will answer, and what that will probably cost if its models are served."""

from collections.abc import Sequence

from infer.decoders.base import find_decoder
from infer.recipe import InferRecipe
from refinery.llms.served.endpoint import ServedModelConfig
from refinery.llms.served.prices import probable_dollars, probable_seconds
from refinery.runtime.forecast import Forecast, Range, RowsOf


def forecast(recipe: InferRecipe, rows_of: RowsOf) -> Forecast:
    """The forecast of a run whose questions may not exist yet.

    What a model on this machine takes is unknown, and so is what a decoder costs that does not say how often it calls.
    """
    counts = [rows_of(path) for path in recipe.questions]
    rows = sum(count for count in counts if count is not None) if None not in counts else None
    models = (recipe.model, *recipe.sub_models.values())
    served = [model for model in models if isinstance(model, ServedModelConfig)]
    if not served:
        return Forecast(rows, seconds=None)
    calls_of, passages = find_decoder(recipe.decoder).calls, recipe.passages_per_query if recipe.retriever else 0
    if rows is None or calls_of is None:
        return Forecast(rows, dollars=None, seconds=None)
    low, high = calls_of(recipe.decoder_options(recipe.output_dir.name), passages)
    calls = rows * low, rows * high
    dollars = _dollars(recipe, served, calls, passages, all_served=len(served) == len(models))
    return Forecast(rows, calls=calls, dollars=dollars, seconds=probable_seconds(served[0], calls))


def _dollars(recipe: InferRecipe, served: Sequence[ServedModelConfig], calls: Range, passages: int, *, all_served: bool) -> Range | None:
    """From all calls to the cheapest model, or to one that costs nothing, up to all calls to the dearest; None without a known price."""
    by_model = [probable_dollars(model, calls, passages=passages, max_tokens=recipe.max_new_tokens) for model in served]
    known = [dollars for dollars in by_model if dollars is not None]
    if len(known) < len(by_model):
        return None
    return min(low for low, _ in known) if all_served else 0.0, max(high for _, high in known)
