"""The keys of a teacher: a model behind an endpoint, or one that vLLM runs in this process."""

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from refinery.llms.served.endpoint import EndpointConfig
from refinery.llms.vllm.keys import VllmKeys, refuse_keys

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
