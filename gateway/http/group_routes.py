"""Consumer groups over HTTP."""

from typing import Final

from gateway.http.operation import Operation

OPERATIONS: Final[tuple[Operation, ...]] = ()
