"""/v1/webhooksecret: the secret that webhooks are signed with, for keys of scope "all" only.

Reading it writes a line in the audit log too, since whoever has the secret can sign as this service.
"""

from __future__ import annotations

from fastapi import APIRouter, Depends
from pydantic import ConfigDict

from stoker.control.errors import Unauthorized
from stoker.control.http.management.operations.caller import By, Managed
from stoker.control.http.management.operations.shapes import DELETES, LISTS, ResponseBody, refusals


async def _secret_manager(by: By) -> None:
    if not by.access.keys:
        raise Unauthorized('only a key of scope "all" may see or change the secret of webhooks')


router = APIRouter(prefix="/webhooksecret", tags=["keys"], dependencies=[Depends(_secret_manager)])


class WebhookSecretResponse(ResponseBody):
    model_config = ConfigDict(
        title="WebhookSecret", json_schema_extra={"examples": [{"secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZI"}]}
    )

    secret: str


@router.get("", responses=LISTS)
async def get_webhook_secret(managed: Managed) -> WebhookSecretResponse:
    """Returns the secret that webhooks are signed with; while it is rotated, the newer one."""
    return WebhookSecretResponse(secret=await managed.webhook_secret.show())


@router.post("/rotate", responses=refusals(400))
async def rotate_webhook_secret(managed: Managed) -> WebhookSecretResponse:
    """Makes a new secret, and returns it. Webhooks are signed with the one before as well, until that is
    dropped."""
    return WebhookSecretResponse(secret=await managed.webhook_secret.rotate())


@router.post("/drop-old", **DELETES)
async def drop_old_webhook_secret(managed: Managed) -> None:
    """Ends the signatures with the secret before."""
    await managed.webhook_secret.drop_old()
