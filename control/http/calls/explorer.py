"""The explorers, /docs and /v1/docs: Swagger UI as it is installed here. They load nothing from elsewhere.

The files come from the package fastapi-offline, which is nothing but them and a class that is not used here.
People type their keys into these pages, so no other page may frame them, and no script runs in them but
theirs.
"""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.util import find_spec
from pathlib import Path

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.responses import Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

ASSETS = "/docs/assets"
"""Below the root, for both pages; no key is required."""

_INLINE = re.compile(rb"<script>(.*?)</script>", re.DOTALL)


def assets() -> Mount:
    found = find_spec("fastapi_offline")
    assert found is not None
    assert found.origin is not None
    return Mount(ASSETS, StaticFiles(directory=Path(found.origin).parent / "static"))


def add_explorer(app: FastAPI, document: str) -> None:
    """Adds the page /docs to this application, for the document at this address."""
    page = get_swagger_ui_html(
        openapi_url=document,
        title=app.title,
        swagger_js_url=f"{ASSETS}/swagger-ui-bundle.js",
        swagger_css_url=f"{ASSETS}/swagger-ui.css",
        swagger_favicon_url=f"{ASSETS}/favicon.png",
        swagger_ui_parameters={"validatorUrl": None},  # else a badge sends the document to its makers
    )

    page.headers.update(_policy(bytes(page.body)))

    async def explorer() -> Response:
        return page

    app.add_api_route("/docs", explorer, methods=["GET", "HEAD"], include_in_schema=False)


def _policy(page: bytes) -> dict[str, str]:
    """Headers that allow the page what it has, and its calls to this server. Swagger UI sets styles of its
    elements, has its icons as data, and shows files of an answer as blobs."""
    digests = [base64.b64encode(hashlib.sha256(one).digest()).decode() for one in _INLINE.findall(page)]
    scripts = " ".join(f"'sha256-{one}'" for one in digests)
    rules = (
        "default-src 'none'",
        f"script-src 'self' {scripts}",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "media-src 'self' data: blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
    return {
        "content-security-policy": "; ".join(rules),
        "x-frame-options": "DENY",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
    }
