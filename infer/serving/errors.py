"""Errors in the form that OpenAI's clients raise."""

from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from refinery.runtime.http_checks import RequestFault


class ApiError(Exception):
    """An error that the client receives in OpenAI's format; `parameter` is the request key that caused it."""

    def __init__(self, status: int, message: str, *, code: str | None = None, parameter: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        kinds = {401: "authentication_error", 429: "rate_limit_error"}
        kind = kinds.get(status, "invalid_request_error" if status < 500 else "server_error")
        self.body = {"error": {"message": message, "type": kind, "param": parameter, "code": code}}

    def renamed(self, names: Mapping[str, str]) -> "ApiError":
        """The error with the names that an endpoint's own requests have for keys, here and where the message begins with one."""
        message, error = str(self), self.body["error"]
        key, dot, rest = (error["param"] or "").partition(".")
        if key not in names:
            return self
        message = names[key] + message.removeprefix(key) if message.startswith(key) else message
        return ApiError(self.status, message, code=error["code"], parameter=f"{names[key]}{dot}{rest}")


async def _tell(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return JSONResponse(error.body, status_code=error.status, headers={"Retry-After": "1"} if error.status == 429 else None)


async def _tell_fault(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestFault)
    return JSONResponse(ApiError(error.status, str(error), code=error.code).body, status_code=error.status)


async def _tell_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse(ApiError(error.status_code, f"{request.url.path}: {error.detail}").body, status_code=error.status_code)


HANDLERS: Any = {ApiError: _tell, RequestFault: _tell_fault, HTTPException: _tell_http}
