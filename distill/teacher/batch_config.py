"""How requests are grouped into Batch jobs, as a recipe says it."""

from typing import Literal

from pydantic import Field

from refinery.runtime.recipes.recipe import Recipe


class BatchConfig(Recipe):
    """How requests are grouped into Batch jobs; the default limits are OpenAI's."""

    max_requests: int = Field(default=50_000, description="maximum requests per job", ge=1)
    max_bytes: int = Field(default=200_000_000, description="maximum bytes of a job's input file", ge=1)
    poll_seconds: float = Field(default=60.0, description="seconds between two polls of a job", gt=0)
    quiet_seconds: float = Field(default=5.0, description="a wave is sent after this many seconds without a new request", gt=0)
    stragglers: Literal["batch", "live"] = Field(
        default="batch", description="how to send requests again that a job left unanswered; with `live`, all are priced as live"
    )
    price_factor: float = Field(default=0.5, description="price of a batched token relative to a live one", gt=0)
