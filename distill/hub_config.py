"""The recipe key `hub` of a labeling run."""

from pydantic import Field

from refinery.hub.config import HubConfig


class LabelHubConfig(HubConfig):
    """A dataset repository that receives labels while they are made."""

    questions_per_part: int = Field(default=1000, description="questions whose rows are one Parquet file for each split", ge=1)
    minutes: float = Field(default=10.0, description="an unfinished part is pushed too after this time, and replaced later", gt=0)
