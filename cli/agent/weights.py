"""The weights that the agent fetches for its workers, and where it fetches them.

STOKER_WEIGHTS_DIR          the folder of weights; the user's cache by default
STOKER_WEIGHTS_CACHE_MB     MB of weights that the agent fetches and keeps; 200000 by default, 0 fetches none
STOKER_WEIGHTS_MIRROR       in place of the hub: a folder, a URL, or s3://bucket/prefix in the object store of
                            STOKER_S3_*. It holds <entry>/<path>
HF_ENDPOINT, HF_TOKEN       the hub's address, and the token for repositories that need one
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from stoker.agent.weights.cache import WeightsCache
from stoker.agent.weights.fetching import Fetcher
from stoker.agent.weights.interfaces import NoWeights, Weights
from stoker.agent.weights.sources import HUB_ENDPOINT, Hub, Mirror, Place, folder_mirror, url_mirror
from stoker.agent.weights.store import WeightsStore
from stoker.cli.control import s3_settings
from stoker.cli.errors import CliError
from stoker.outbound.download import HttpFile
from stoker.outbound.errors import OutboundError
from stoker.outbound.s3.buckets import ObjectStoreConfig
from stoker.outbound.s3.objects import ObjectStore

CACHE_MB, MIRROR = "STOKER_WEIGHTS_CACHE_MB", "STOKER_WEIGHTS_MIRROR"
DEFAULT_MB = 200_000
S3 = "s3://"
SIGNED_S = 3600
"""How long a request to the bucket may be sent; a new try signs another."""


class SharedDigests:
    """The digests that `stoker weights` and workers share: what one of them has read, none reads again."""

    def known(self, folder: Path) -> Mapping[str, str]:
        from stoker.models.weights import known_digests  # many agents never look at weights

        return known_digests(folder)

    def record(self, folder: Path, digests: Mapping[str, str]) -> None:
        from stoker.models.weights import record_digests

        record_digests(folder, digests)


def weights_cache(
    folder: Path, node: str, variables: Mapping[str, str], environ: Mapping[str, str]
) -> Weights:
    """Creates the cache of weights. `node`: its name in reasons. `variables` are the STOKER_ variables of the
    environment, and `environ` the rest. Raises CliError."""
    text = variables.get(CACHE_MB, str(DEFAULT_MB))
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise CliError(f"{CACHE_MB} must be a whole number of megabytes from 0, not {text!r}")
    if int(text) == 0:
        return NoWeights()
    hub = Hub(environ.get("HF_ENDPOINT") or HUB_ENDPOINT, environ.get("HF_TOKEN", ""))
    store = WeightsStore(folder, int(text) * 1_000_000, SharedDigests())
    return WeightsCache(Fetcher(store, hub, _mirror(variables.get(MIRROR, ""), variables)), node)


def _mirror(mirror: str, variables: Mapping[str, str]) -> Mirror | None:
    if not mirror:
        return None
    if mirror.startswith(("http://", "https://")):
        return url_mirror(mirror)
    if mirror.startswith(S3):
        known = s3_settings.from_environment(variables)
        if known is None:
            raise CliError(f"to read {mirror}, name its object store in STOKER_S3_*")
        return bucket_mirror(mirror, known)
    if not Path(mirror).is_absolute():
        raise CliError(f"{MIRROR} must be an absolute path, a URL or s3://bucket/prefix; got {mirror!r}")
    return folder_mirror(Path(mirror))


def bucket_mirror(mirror: str, known: ObjectStoreConfig) -> Mirror:
    """Returns the mirror `s3://bucket/prefix` in this object store. Its requests are signed, so that a broken
    download can be resumed. They are signed for the region that the store accepts, which is found out
    first."""
    bucket, _, prefix = mirror.removeprefix(S3).partition("/")
    store = ObjectStore(replace(known, bucket=bucket, folder=""))
    prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    def place(name: str) -> Place:
        with suppress(OutboundError):  # it is said by the request itself
            store.find(prefix + name)
        url = store.presign("get_object", prefix + name, SIGNED_S)
        return Place(HttpFile(url), f"{name} in the mirror {mirror}")

    return place
