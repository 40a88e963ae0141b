"""The answer about a node that is avoided for an endpoint's version: in the record of the node and in that of
the endpoint."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import ConfigDict, Field

from stoker.control.http.management.operations.shapes import ResponseBody
from stoker.control.scheduling.avoidance import Avoided


class AvoidedResponse(ResponseBody):
    """A version of an endpoint whose workers did not start on a node: others are preferred for a time."""

    model_config = ConfigDict(title="NodeAvoided")

    endpointId: str
    version: int
    nodeId: str
    reason: Annotated[str, Field(description="Of the last worker that failed there.")]
    failures: Annotated[int, Field(description="In a row; the time doubles with each.")]
    untilAt: datetime


def avoided_response(one: Avoided) -> AvoidedResponse:
    return AvoidedResponse(
        endpointId=one.version.endpoint,
        version=one.version.number,
        nodeId=one.node,
        reason=one.why,
        failures=one.times,
        untilAt=datetime.fromtimestamp(one.until, UTC),
    )
