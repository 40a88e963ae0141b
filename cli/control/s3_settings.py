"""The object store of control: `[s3]` of the configuration, else STOKER_S3_* in the environment.

`stoker up` passes its embedded store to control in the environment, not in arguments: every user of the
machine can read arguments. Only that has a folder, which control takes for its own (`S3Artifacts.start`).
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING

from stoker.cli.errors import CliError
from stoker.outbound.s3.buckets import ObjectStoreConfig

if TYPE_CHECKING:  # an agent calls take_secrets, too, and its install has no control
    from stoker.control.config.sections import Config

PREFIX = "STOKER_S3_"
_REQUIRED = ("ENDPOINT_URL", "BUCKET", "ACCESS_ID", "ACCESS_SECRET")


def from_config(config: Config) -> ObjectStoreConfig | None:
    section = config.s3
    if section is None:
        return None
    return ObjectStoreConfig(
        endpoint_url=section.endpoint_url,
        public_endpoint=section.public_endpoint or "",
        region=section.region,
        bucket=section.bucket,
        access_id=section.access_id,
        access_secret=section.access_secret.get_secret_value(),
    )


def from_environment(environ: Mapping[str, str]) -> ObjectStoreConfig | None:
    """Returns the store in the environment, or None. Raises CliError if only some required variables are
    set."""
    values = {name: environ.get(PREFIX + name, "") for name in _REQUIRED}
    missing = [PREFIX + name for name, value in values.items() if not value]
    if len(missing) == len(_REQUIRED):
        return None
    if missing:
        raise CliError(f"the environment names an object store, but not {', '.join(missing)}")
    return ObjectStoreConfig(
        endpoint_url=values["ENDPOINT_URL"],
        public_endpoint=environ.get(PREFIX + "PUBLIC_ENDPOINT", ""),
        region=environ.get(PREFIX + "REGION", ""),
        bucket=values["BUCKET"],
        access_id=values["ACCESS_ID"],
        access_secret=values["ACCESS_SECRET"],
        session_token=environ.get(PREFIX + "SESSION_TOKEN", ""),
        folder=environ.get(PREFIX + "FOLDER", ""),
    )


def to_environment(config: ObjectStoreConfig) -> dict[str, str]:
    return {
        PREFIX + "ENDPOINT_URL": config.endpoint_url,
        PREFIX + "PUBLIC_ENDPOINT": config.public_endpoint,
        PREFIX + "REGION": config.region,
        PREFIX + "BUCKET": config.bucket,
        PREFIX + "ACCESS_ID": config.access_id,
        PREFIX + "ACCESS_SECRET": config.access_secret,
        PREFIX + "FOLDER": config.folder,
    }


def take_secrets(environ: MutableMapping[str, str]) -> dict[str, str]:
    """Removes the STOKER_ variables from the environment, so that no child inherits them, and returns
    them."""
    return {name: environ.pop(name) for name in list(environ) if name.startswith("STOKER_")}
