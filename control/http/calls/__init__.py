"""The invocation interface over HTTP: `app.make_app` builds it over a plane, `server.serve_http` runs it.

FastAPI is imported here first, without what no call needs: 2.8 MB and 0.06 s of control's start. The models
of its documents are compiled by the first document, and pydantic's old version, which it imports to refuse
models of it, is not imported at all.
"""

import sys

from pydantic import BaseModel

sys.modules.setdefault("pydantic.v1", None)  # type: ignore[arg-type]  # an import of it fails, as FastAPI expects
BaseModel.model_config["defer_build"] = True
try:
    import fastapi  # noqa: F401
finally:
    del BaseModel.model_config["defer_build"]
