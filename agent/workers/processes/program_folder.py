"""The folder that a program starts in: one of its own, with a link for each name of the endpoint's folder.

    handlers/chat/             homes/w1.3/work/
        handler.py    <-----       handler.py
        weights/      <-----       weights/
                                   jobs/, .runpod_jobs.pkl: what the program makes there is its own

Programs of the field take the folder they start in for theirs alone, as it is in a container: the stock SDK
keeps there which jobs are running (versions 1.7.12 to 1.10.0), downloads inputs to it, and clears folders by
name. Two workers of an endpoint, or one and its successor, must not find each other's. And a worker that has
another user may write to it.

Names that are made in the endpoint's folder later have no link, and `..` is not the folder above it.
"""

from __future__ import annotations

import itertools
import logging
import os
from pathlib import Path

from stoker.agent.host.sandbox.isolation import User

log = logging.getLogger(__name__)

LINKS_MAX = 10_000
"""Of a folder with more names its programs start in itself: the links would hold the agent up."""


def own_folder(source: Path, home: Path, user: User | None) -> Path:
    """Returns a new folder of links to the source's entries, in the process's home and deleted with it; the
    source itself where it has too many. Raises OSError."""
    with os.scandir(source) as entries:
        names = [entry.name for entry in itertools.islice(entries, LINKS_MAX + 1)]
    if len(names) > LINKS_MAX:
        log.warning("%s has more than %d names: its programs start in it, and share it", source, LINKS_MAX)
        return source
    made = home / "work"
    made.mkdir(mode=0o700)
    fd = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:  # by its descriptor: the home is its user's, whose other workers may put a link in its place by now
        for name in names:
            os.symlink(source / name, name, dir_fd=fd)
        if user is not None:
            os.chown(fd, *user)
    finally:
        os.close(fd)
    return made
