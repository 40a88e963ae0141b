"""The shapes of answers and FastAPI's own models, compiled with the document and not at each start."""

from __future__ import annotations

import subprocess
import sys

COUNT = """
from stoker.control.http.calls import jobs

print(len(jobs.ROUTES) > 15, sum(len(route.response_fields) for route in jobs.ROUTES))
"""


def test_refusals_of_routes_are_words_of_the_document_and_no_fields() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", COUNT], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True 0\n", "")


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
