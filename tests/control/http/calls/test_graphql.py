"""GraphQL is refused with a sentence, whatever is asked of it."""

from __future__ import annotations

import httpx2

NO_KEY = {"Authorization": "Bearer wrong"}


async def test_graphql_answers_errors_to_any_query(http: httpx2.AsyncClient) -> None:
    for body in (b"", b"{", b'{"query": "mutation { podTerminate }"}', b"\xff"):
        answer = await http.post("/graphql", content=body)
        assert answer.status_code == 200
        assert answer.json()["data"] is None
        [error] = answer.json()["errors"]
        assert "nothing was changed" in error["message"]
    refused = await http.post("/graphql", content=b"{}", headers=NO_KEY)
    assert refused.status_code == 401
    assert refused.json()["errors"][0]["message"]
