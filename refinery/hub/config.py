"""The recipe key `hub`: a repository that receives a run's results."""

from pydantic import Field

from refinery.runtime.recipe import Recipe


class HubConfig(Recipe):
    """A hub repository that receives a run's results while it runs and at the end."""

    to: str = Field(description="owner/name; created if it does not exist", pattern=r"^[\w.-]+/[\w.-]+$")
    private: bool = Field(default=True, description="whether a new repository is private")
