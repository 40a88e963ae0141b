"""Which object store control uses: `[s3]` of the configuration, else STOKER_S3_* in the environment.

`stoker up` hands its embedded store to control through the environment, never through arguments: those are
readable by everybody on the machine.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from stoker.cli.errors import CliError
from stoker.control.config_sections import Config
from stoker.outbound.objects import ObjectStoreConfig

PREFIX = "STOKER_S3_"
_REQUIRED = ("ENDPOINT_URL", "BUCKET", "ACCESS_ID", "ACCESS_SECRET")


def from_config(config: Config) -> ObjectStoreConfig | None:
    given = config.s3
    if given is None:
        return None
    return ObjectStoreConfig(
        endpoint_url=given.endpoint_url,
        public_endpoint=given.public_endpoint or "",
        region=given.region,
        bucket=given.bucket,
        access_id=given.access_id,
        access_secret=given.access_secret.get_secret_value(),
    )


def from_environment(environ: Mapping[str, str]) -> ObjectStoreConfig | None:
    """All of the required ones, or none of them."""
    given = {name: environ.get(PREFIX + name, "") for name in _REQUIRED}
    missing = [PREFIX + name for name, value in given.items() if not value]
    if len(missing) == len(_REQUIRED):
        return None
    if missing:
        raise CliError(f"the environment names an object store, but not {', '.join(missing)}")
    return ObjectStoreConfig(
        endpoint_url=given["ENDPOINT_URL"],
        public_endpoint=environ.get(PREFIX + "PUBLIC_ENDPOINT", ""),
        region=environ.get(PREFIX + "REGION", "us-east-1"),
        bucket=given["BUCKET"],
        access_id=given["ACCESS_ID"],
        access_secret=given["ACCESS_SECRET"],
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
    """Our own variables, taken out of the environment so that nothing started later inherits them."""
    return {name: environ.pop(name) for name in list(environ) if name.startswith("STOKER_")}
