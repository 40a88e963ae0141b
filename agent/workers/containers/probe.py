"""Checks that the engine sees the agent's folders under the paths that the agent will mount.

The agent writes a file with random contents into the folder and reads it back through the engine.

An engine mounts folders of its own host. If the agent is in a container, or its engine on another machine,
the same path is another folder, and workers would find it empty. The check runs once, at the agent's start,
with a container of an empty image that is never started. Blocking.
"""

from __future__ import annotations

import contextlib
import io
import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from docker import APIClient

TARGET = "/probe"


def mount_problem(client: APIClient, labels: dict[str, str], inside: Path, outside: Path) -> str | None:
    """Returns why the engine does not see the agent's folder `inside` as `outside`, or None if it does.
    Raises the client's exceptions if the engine refuses for another reason, and OSError."""
    from docker.errors import APIError, NotFound

    contents = secrets.token_hex(16)
    file = inside / f"probe-{contents[:8]}"
    file.write_text(contents)
    try:
        with _image(client) as image, _container(client, image, labels, outside) as container:
            found = _read(client, container, file.name)
    except NotFound:
        return f"{outside} on the engine's host is not the agent's {inside}"
    except APIError as error:
        message = str(error.explanation or error)
        if str(outside) not in message:
            raise
        return f"the engine's host has no {outside}: {message}"
    finally:
        file.unlink()
    return None if found == contents else f"{outside} on the engine's host is not the agent's {inside}"


@contextlib.contextmanager
def _image(client: Any) -> Iterator[str]:
    """Imports an image that holds one empty folder; removes it afterwards."""
    import tarfile

    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        folder = tarfile.TarInfo(TARGET.lstrip("/"))
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(folder)
    answer = client.import_image_from_data(made.getvalue(), repository="stoker-probe")
    image = json.loads(answer.splitlines()[-1])["status"]
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
    import tarfile

    stream, _ = client.get_archive(container, f"{TARGET}/{name}")
    try:
        packed = io.BytesIO(b"".join(stream))
    finally:
        stream.close()
    with tarfile.open(fileobj=packed) as tar:
        file = tar.extractfile(name)
        return "" if file is None else file.read().decode(errors="replace")
