"""Typed exceptions. Each carries `.code`, `.name` and `.reasons`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True)
class Reason:
    """One refusal as data."""

    code: str
    field: str
    got: str
    accepted: str
    remedy: str
    message: str


class FoveaError(Exception):
    """Base of all errors of the library."""

    def __init__(self, code: int, name: str, message: str, reasons: Iterable[Reason] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.name = name
        self.reasons = list(reasons)


class ArgumentError(FoveaError, ValueError):
    """An argument, configuration, file or tensor is wrong (codes 1xx)."""


class UnsupportedError(FoveaError, NotImplementedError):
    """No admitted path can run the request (codes 2xx)."""


class DeviceError(FoveaError, RuntimeError):
    """A device or its driver failed (codes 3xx)."""


class ResourceError(FoveaError, MemoryError):
    """Memory or another resource is short (codes 4xx)."""


class CommunicationError(FoveaError, RuntimeError):
    """Ranks could not communicate (codes 5xx)."""


class InternalError(FoveaError, RuntimeError):
    """A fault of the library (codes 9xx)."""


_GROUPS = {1: ArgumentError, 2: UnsupportedError, 3: DeviceError, 4: ResourceError, 5: CommunicationError}


def class_for(code: int) -> type[FoveaError]:
    return _GROUPS.get(code // 100, InternalError)
