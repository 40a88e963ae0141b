"""What an engine's refusal, or its silence, is called: the `docker` package's errors as sentences."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class EngineError(Exception):
    """The engine refused, or cannot be reached; the text is a sentence."""


class NotThere(EngineError):
    """The engine has no image or container of that name or id."""


class Unanswered(EngineError):
    """It may have done what it was asked, or may do it yet."""


@contextlib.contextmanager
def in_words() -> Iterator[None]:
    """Around calls of the package."""
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
