"""The fields of templates that pods and endpoints are made from here, which copy them once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stoker.control.errors import Unprocessable
from stoker.control.resources import ManagedResources


async def template_fields(
    managed: ManagedResources, account: str, template: str, *, serverless: bool
) -> Mapping[str, Any]:
    """Returns a template's fields. Raises NotFound, and Unprocessable if it is for the other kind."""
    found = await managed.templates.get(account, template, public=True)
    if bool(found.fields["isServerless"]) is not serverless:
        other = ("an endpoint", "a pod") if serverless else ("a pod", "an endpoint")
        raise Unprocessable(
            f"templateId must be of a template for {other[0]}; {template} is for {other[1]}"
            f" (serverless: {str(not serverless).lower()})"
        )
    return found.fields
