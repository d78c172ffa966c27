"""The keys under which a teacher's replies are stored: everything that can change a complete reply, and nothing else."""

from functools import cache
from typing import Any, Literal, get_origin
from urllib.parse import urlsplit

from pydantic import BaseModel

from refinery.llms.served.endpoint import EndpointConfig
from refinery.llms.served.protocols.base import protocol_of
from refinery.runtime.files.fingerprint import store_key
from refinery.stores.base import effect_key


def provider_of(config: EndpointConfig) -> str:
    """The part of an address that belongs to a request's key.

    A provider's models and Azure's deployments differ from models of the same name elsewhere. For other servers the model's name is
    enough, so that requests are not sent again when a server moves to another port or machine.
    """
    if config.azure_api_version:
        return "azure"
    protocol = protocol_of(config)
    return protocol.provider if all(url is None or urlsplit(url).hostname == protocol.host for url in config.base_urls) else "by name"


def request_key(frame: bytes, messages: tuple[tuple[str, str], ...], rollout: int) -> bytes:
    """The key of one sample of a chat, whose `frame` is a `frame_key`."""
    content = frame
    for role, message in messages:
        text = message.encode("utf-8", "surrogatepass")
        content += b"%s:%d:%d:%s" % (role.encode(), rollout, len(text), text)  # two different requests never have the same bytes
    return store_key(content)


@cache
def json_schema(schema: type[BaseModel] | None) -> dict[str, Any] | None:
    """The JSON schema of a reply, made once."""
    return schema.model_json_schema() if schema else None


@cache
def label_field(schema: type[BaseModel] | None) -> str | None:
    """The only field of a schema that is a label, or numbers of labeled things; None if there is none or more than one."""
    fields = schema.model_fields if schema else {}
    found = [name for name, field in fields.items() if get_origin(field.annotation) is Literal or field.annotation in (bool, list[int])]
    return found[0] if len(found) == 1 else None


@cache
def frame_key(provider: str, model: str, temperature: float, optional: str, schema: type[BaseModel] | None) -> bytes:
    """The key of the parts that all requests for a schema share. Parameters that a recipe does not set are left out, as in older stores."""
    parts = ("reply", provider, model, temperature, json_schema(schema))
    return effect_key(*parts) if optional == "{}" else effect_key(*parts, optional)
