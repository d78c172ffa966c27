"""The keys of a teacher: a model behind an endpoint, or one that vLLM runs in this process, and how its requests are batched."""

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from refinery.llms.served.endpoint import EndpointConfig
from refinery.llms.vllm.keys import VllmKeys, refuse_keys
from refinery.runtime.recipe import Recipe

# An address of this machine: such models have no price in any table, and are known by their names in the keys of stored replies.
_THIS_MACHINE = "http://localhost"


class TeacherConfig(EndpointConfig, VllmKeys):
    """A teacher. With `transport: vllm`, `model` is a folder or hub name, and what else belongs to an endpoint is refused."""

    transport: Literal["http", "vllm"] = Field(
        default="http",
        description="http: an endpoint; vllm: the checkpoint that `model` names, loaded into this process by vLLM (extra `vllm`)",
        validate_default=True,
    )

    @field_validator("transport")
    @classmethod
    def _with_its_keys(cls, transport: str, info: ValidationInfo) -> str:
        of_servers = ("protocol", "base_url", "azure_api_version", "requests_per_minute", "tokens_per_minute", "extra_body")
        refuse_keys(of_servers if transport == "vllm" else tuple(VllmKeys.model_fields), cls, info.data, kind="transport")
        return transport

    @property
    def base_urls(self) -> list[str | None]:
        """See `EndpointConfig.base_urls`; this machine's for vLLM."""
        return [_THIS_MACHINE] if self.transport == "vllm" else super().base_urls


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
