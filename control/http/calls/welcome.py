"""The page at `/`, for somebody who opens control's address in a browser: what this is, and where to go."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Stoker</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>
:root { color-scheme: light dark; }
body { font: 16px/1.6 system-ui, sans-serif; max-width: 40rem; margin: 10vh auto; padding: 0 16px; }
</style></head><body><main><h1>Stoker</h1>
<p>This address serves an API: jobs at <code>/v2/{endpoint_id}/run</code>, management at <code>/v1</code>.</p>
<ul>
<li><a href="/docs">The API of the endpoints</a>, to read and to try</li>
<li><a href="/v1/docs">The management API</a></li>
</ul>
<p>To look at jobs and nodes in a browser, run <code>stoker page --url</code> with this address.</p>
</main></body></html>"""
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}

router = APIRouter(include_in_schema=False)


@router.api_route("/", methods=["GET", "HEAD"])
async def welcome() -> HTMLResponse:
    """Returns the page. It says nothing about what runs here."""
    return HTMLResponse(_PAGE, headers=_HEADERS)
