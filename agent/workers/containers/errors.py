"""The errors of a container engine. Turns the exceptions of the `docker` package into readable errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class EngineError(Exception):
    """The engine refused, or cannot be reached; the message says why."""


class NotThere(EngineError):
    """The engine has no image or container of that name or id."""


class Unanswered(EngineError):
    """The engine did not answer: the call may have been carried out, or may be carried out later."""


@contextlib.contextmanager
def readable_errors() -> Iterator[None]:
    """Turns exceptions of the `docker` package that are raised in the block into EngineErrors."""
    from docker.errors import APIError, DockerException, NotFound
    from requests.exceptions import RequestException

    try:
        yield
    except APIError as error:
        kind = NotThere if isinstance(error, NotFound) else EngineError
        raise kind(str(error.explanation or error)) from None
    except (DockerException, RequestException, OSError) as error:
        raise Unanswered(f"the container engine cannot be reached: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unanswered(f"the container engine's answer cannot be read: {error!r}") from None
