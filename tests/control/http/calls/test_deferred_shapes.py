"""The shapes of answers and FastAPI's own models, compiled with the document and not at each start."""

from __future__ import annotations

import subprocess
import sys

COUNT = """
from fastapi.openapi.utils import get_openapi
from stoker.control.http.calls import jobs

def compiled():
    fields = [field for route in jobs.ROUTES for field in route.response_fields.values()]
    return len(fields), sum(field._type_adapter.pydantic_complete is True for field in fields)

count, before = compiled()
document = get_openapi(title="", version="", routes=jobs.ROUTES)
assert {"Error", "Missing", "Health"} <= set(document["components"]["schemas"])
print(count > 100, before < 5, compiled()[1] == count)
"""


def test_refusals_of_routes_are_compiled_when_the_document_is_asked_for() -> None:
    """Only the unions among them are compiled at once."""
    done = subprocess.run([sys.executable, "-P", "-c", COUNT], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True True True\n", "")


DOCUMENT = """
import sys
from stoker.control.http.calls import jobs
from fastapi.openapi.models import OpenAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

before = OpenAPI.__pydantic_complete__
get_openapi(title="", version="", routes=jobs.ROUTES)
print(before, OpenAPI.__pydantic_complete__, BaseModel.model_config, "pydantic.v1.main" in sys.modules)
"""


def test_models_of_documents_are_compiled_by_the_first_document() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", DOCUMENT], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("False True {} False\n", "")
