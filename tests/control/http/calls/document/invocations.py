"""The operations of the invocation interface, by the names that its OpenAPI document has for them."""

from __future__ import annotations

import re

OPERATIONS = [
    "POST /v2/{endpoint_id}/run",
    "POST /v2/{endpoint_id}/runsync",
    "GET /v2/{endpoint_id}/status/{job_id}",
    "POST /v2/{endpoint_id}/status/{job_id}",
    "GET /v2/{endpoint_id}/status-sync/{job_id}",
    "POST /v2/{endpoint_id}/status-sync/{job_id}",
    "GET /v2/{endpoint_id}/stream/{job_id}",
    "POST /v2/{endpoint_id}/stream/{job_id}",
    "POST /v2/{endpoint_id}/cancel/{job_id}",
    "POST /v2/{endpoint_id}/retry/{job_id}",
    "POST /v2/{endpoint_id}/purge-queue",
    "GET /v2/{endpoint_id}/requests",
    "GET /v2/{endpoint_id}/logs/{job_id}",
    "GET /v2/{endpoint_id}/attempts/{job_id}",
    "GET /v2/{endpoint_id}/input/{job_id}",
    "GET /v2/{endpoint_id}/case/{job_id}",
    "POST /v2/{endpoint_id}/replay/{job_id}",
    "POST /v2/{endpoint_id}/files",
    "GET /v2/{endpoint_id}/health",
]
WITH_PARAMETERS = [one for one in OPERATIONS if re.search("/(run|status|stream|requests|replay)", one)]
"""The others can be asked wrongly by their path only."""
