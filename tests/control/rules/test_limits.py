"""The numbers of the interface, compared with the sentences of its description, written out here."""

from __future__ import annotations

from stoker.control.rules import limits

SECOND, MINUTE, HOUR, DAY = 1, 60, 3_600, 24 * 3_600


def test_policy_bounds_and_defaults() -> None:
    """executionTimeout 5 seconds to 7 days (default 10 minutes); ttl 10 seconds to 7 days (default 24
    hours)."""
    assert limits.EXECUTION_TIMEOUT_MS == (5 * SECOND * 1000, 7 * DAY * 1000)
    assert limits.DEFAULT_EXECUTION_TIMEOUT_MS == 10 * MINUTE * 1000
    assert limits.TTL_MS == (10 * SECOND * 1000, 7 * DAY * 1000)
    assert limits.DEFAULT_TTL_MS == 24 * HOUR * 1000


def test_retention_and_url_life() -> None:
    """30 minutes after an asynchronous job, 1 minute after a synchronous job (5 minutes at most). Generated
    image and video URLs expire after 7 days."""
    assert limits.RETENTION_S == 30 * MINUTE
    assert (limits.RETENTION_SYNC_S, limits.RETENTION_SYNC_MOST_S) == (1 * MINUTE, 5 * MINUTE)
    assert limits.URL_LIFE_S == 7 * DAY


def test_webhooks() -> None:
    """The receiver must answer with status 200. If the call fails, it is retried up to 2 more times, 10
    seconds apart."""
    assert limits.WEBHOOK_TAKEN == 200
    assert (limits.WEBHOOK_TRIES, limits.WEBHOOK_RETRY_S) == (1 + 2, 10 * SECOND)


def test_rate_table() -> None:
    """Requests per 10 seconds, and concurrent requests; the last four rows are ours."""
    assert limits.WINDOW_MS == 10 * SECOND * 1000
    found = {name: (limit.window, limit.at_once) for name, limit in limits.RATE_LIMITS.items()}
    assert found == {
        "runsync": (2000, 400),
        "run": (1000, 200),
        "status": (2000, 400),
        "stream": (2000, 400),
        "cancel": (100, 20),
        "purge-queue": (2, None),
        "openai": (2000, 400),
        "requests": (10, 2),
        "status-sync": (2000, 400),
        "logs": (2000, 400),
        "attempts": (2000, 400),
        "input": (100, 20),
        "files": (200, None),
        "case": (10, 2),
        "replay": (10, 2),
    }


def test_development_server() -> None:
    """--host localhost; --port 8888; up to 3 resources deploy concurrently; confirmation is asked when more
    than 5 endpoints would be deployed."""
    assert (limits.DEV_HOST, limits.DEV_PORT) == ("localhost", 8888)
    assert (limits.DEV_DEPLOYS_AT_ONCE, limits.DEV_CONFIRMS_ABOVE) == (3, 5)
