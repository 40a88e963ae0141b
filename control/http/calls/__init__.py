"""The invocation interface over HTTP: `app.make_app` builds it over a plane, `server.serve_http` runs it.

FastAPI and uvicorn are imported here first, without what no call needs: 3.6 MB and 0.06 s of control's start.
The models of FastAPI's documents are compiled by the first document. pydantic's old version, which FastAPI
imports to refuse models of it, is not imported at all, nor is uvicorn's watcher of edited files.
"""

import sys

from pydantic import BaseModel

sys.modules.setdefault("pydantic.v1", None)  # type: ignore[arg-type]  # an import of it fails, as FastAPI expects
_watched = "watchfiles" in sys.modules
sys.modules.setdefault("watchfiles", None)  # type: ignore[arg-type]  # and this, as uvicorn expects
BaseModel.model_config["defer_build"] = True
try:
    import fastapi  # noqa: F401
    import uvicorn  # noqa: F401
finally:
    del BaseModel.model_config["defer_build"]
    if not _watched:
        del sys.modules["watchfiles"]
