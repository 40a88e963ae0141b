"""S3 clients that use only the settings passed to them.

botocore takes settings from AWS_* variables, ~/.aws, instance metadata and proxy variables. Here its session
has constants in place of all of them, so that one configuration works the same everywhere. The process has
one session: it contains the parsed service model, which costs 0.2 s and 20 MB.
"""

from __future__ import annotations

import os
import threading
from functools import cache
from typing import Any

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.configprovider import ConfigValueStore, ConstantProvider
from botocore.loaders import Loader
from botocore.session import Session

from stoker.outbound.s3.peers import use_own_connections

_opening = threading.Lock()  # a session is not thread-safe; the clients that it makes are


@cache
def _session() -> boto3.Session:
    constants = {name: ConstantProvider(entry[2]) for name, entry in Session.SESSION_VARIABLES.items()}
    session = Session()
    session.register_component("config_store", ConfigValueStore(constants))
    models = Loader(extra_search_paths=[Loader.BUILTIN_DATA_PATH], include_default_search_paths=False)
    session.register_component("data_loader", models)
    return boto3.Session(botocore_session=session)


def load() -> None:
    """Loads the service model ahead of the first client: for a process that may need its store at once."""
    open_client(
        "http://127.0.0.1:9",
        virtual=False,
        region="us-east-1",
        credentials=("", "", ""),
        attempts=1,
        timeouts=(1.0, 1.0),
    ).close()


def open_client(
    endpoint: str,
    *,
    virtual: bool,
    region: str,
    credentials: tuple[str, str, str],
    attempts: int,
    timeouts: tuple[float, float],
    allow_private: bool = True,
) -> Any:
    """Returns a new client. With `virtual`, the bucket is part of the host name. `credentials` are id, secret
    and session token; with an empty id, the client does not sign."""
    access_id, secret, token = credentials
    config = Config(
        signature_version="s3v4",
        s3={"addressing_style": "virtual" if virtual else "path"},
        proxies={},
        connect_timeout=timeouts[0],
        read_timeout=timeouts[1],
        retries={"mode": "standard", "total_max_attempts": attempts},
        max_pool_connections=16,
        # Many S3 servers do not support the newer checksums; the signature covers the body already.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    with _opening:
        # `Any`: the type stubs of the S3 client are a separate package.
        client: Any = _session().client(
            "s3",
            endpoint_url=endpoint,
            region_name=region,
            aws_access_key_id=access_id,
            aws_secret_access_key=secret,
            aws_session_token=token or None,
            # The only setting from the environment: OpenSSL's own variable for private authorities.
            verify=os.environ.get("SSL_CERT_FILE") or True,
            config=config,
        )
    client.meta.events.register_last("before-parameter-build.s3", _follow_no_region)
    use_own_connections(client, allow_private=allow_private)
    return client


def _follow_no_region(context: dict[str, Any], **_: object) -> None:
    """Stops botocore from repeating a call for the region that a refusal names: it would go on to sign URLs
    for the first one. `connections` repeats the call, and signs for the region that was accepted."""
    context["s3_redirect"]["redirected"] = True


def transfer_config(part_bytes: int) -> TransferConfig:
    """Uploads files larger than one part in parts, one after the other, in the caller's thread: boto3's own
    threads could not be ended, and the process would wait for them when it exits."""
    return TransferConfig(
        multipart_threshold=part_bytes + 1,
        multipart_chunksize=part_bytes,
        use_threads=False,
        preferred_transfer_client="classic",
    )
