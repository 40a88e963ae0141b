"""Whether the engine sees the agent's folders under the names that the agent would give it.

    a file with a random word, in the folder -> the engine shows the file of that name on its host: the same?

An engine mounts folders of its own host. To an agent in a container, or one whose engine is on another
machine, that is another place: its workers would then find empty folders. So it is tried once, at the start,
with a container that is made of nothing and never runs. Blocking.
"""

from __future__ import annotations

import contextlib
import io
import json
import secrets
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from docker import APIClient

TARGET = "/probe"


def unseen(client: APIClient, labels: dict[str, str], inside: Path, outside: Path) -> str | None:
    """Why the engine does not see the agent's folder `inside` as `outside`; None when it does. Raises what
    the client raises when the engine refuses for another reason, and OSError."""
    from docker.errors import APIError, NotFound

    word = secrets.token_hex(16)
    file = inside / f"probe-{word[:8]}"
    file.write_text(word)
    try:
        with _image(client) as image, _container(client, image, labels, outside) as container:
            found = _read(client, container, file.name)
    except NotFound:
        return f"{outside} on the engine's host is not the agent's {inside}"
    except APIError as error:
        said = str(error.explanation or error)
        if str(outside) not in said:
            raise
        return f"the engine's host has no {outside}: {said}"
    finally:
        file.unlink()
    return None if found == word else f"{outside} on the engine's host is not the agent's {inside}"


@contextlib.contextmanager
def _image(client: Any) -> Iterator[str]:
    """Of one empty folder."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        folder = tarfile.TarInfo(TARGET.lstrip("/"))
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(folder)
    told = client.import_image_from_data(made.getvalue(), repository="stoker-probe")
    image = json.loads(told.splitlines()[-1])["status"]
    try:
        yield image
    finally:
        client.remove_image(image, force=True)


@contextlib.contextmanager
def _container(client: Any, image: str, labels: dict[str, str], outside: Path) -> Iterator[str]:
    mount = {"Type": "bind", "Source": str(outside), "Target": TARGET, "ReadOnly": True}
    request = {
        "Image": image,
        "Cmd": ["never"],
        "Labels": labels,
        "HostConfig": {"Mounts": [mount], "NetworkMode": "host"},
    }
    made = client.create_container_from_config(request, f"stoker-probe-{secrets.token_hex(4)}")["Id"]
    try:
        yield made
    finally:
        client.remove_container(made, v=True, force=True)


def _read(client: Any, container: str, name: str) -> str:
    stream, _ = client.get_archive(container, f"{TARGET}/{name}")
    try:
        packed = io.BytesIO(b"".join(stream))
    finally:
        stream.close()
    with tarfile.open(fileobj=packed) as tar:
        file = tar.extractfile(name)
        return "" if file is None else file.read().decode(errors="replace")
