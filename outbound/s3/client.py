"""S3 clients that use only the settings passed to them.

botocore takes settings from AWS_* variables, ~/.aws, instance metadata and proxy variables. Here its session
has constants in place of all of them, so that one configuration works the same everywhere. The process has
one session: it contains the parsed service model, which costs 0.05 s and 5 MB. boto3, a layer above botocore,
is not imported: it would cost 3 MB more for resources that nothing uses here.
"""

from __future__ import annotations

import gzip
import json
import os
import threading
from functools import cache
from typing import Any

from botocore.config import Config
from botocore.configprovider import ConfigValueStore, ConstantProvider
from botocore.loaders import JSONFileLoader, Loader
from botocore.session import Session

from stoker.outbound.s3.file_body import FileBody
from stoker.outbound.s3.peers import use_own_connections

_opening = threading.Lock()  # a session is not thread-safe; the clients that it makes are


class _Undocumented(JSONFileLoader):
    """A reader of botocore's models that empties their documentation, and makes no ordered dictionaries: a
    third of what a client takes."""

    def load_file(self, file_path: str) -> Any:
        for ending, opened in ((".json", open), (".json.gz", gzip.open)):
            if os.path.isfile(file_path + ending):
                with opened(file_path + ending, "rb") as file:
                    return json.load(file, object_pairs_hook=_undocumented)
        return None


def _undocumented(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: "" if name == "documentation" else value for name, value in pairs}


class _Models(Loader):
    """botocore's models without the endpoints of all services of AWS, which are half of what a client takes:
    each client is given its endpoint."""

    def load_data_with_path(self, name: str) -> tuple[Any, str]:
        return ({"partitions": []}, "") if name == "endpoints" else super().load_data_with_path(name)


@cache
def _session() -> Session:
    constants = {name: ConstantProvider(entry[2]) for name, entry in Session.SESSION_VARIABLES.items()}
    session = Session()
    session.register_component("config_store", ConfigValueStore(constants))
    models = _Models(
        extra_search_paths=[Loader.BUILTIN_DATA_PATH],
        file_loader=_Undocumented(),
        include_default_search_paths=False,
    )
    session.register_component("data_loader", models)
    return session


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
        # us-east-1 is a region like others: botocore would look up its global endpoint.
        s3={
            "addressing_style": "virtual" if virtual else "path",
            "us_east_1_regional_endpoint": "regional",
        },
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
        client: Any = _session().create_client(
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


def upload(client: Any, body: FileBody, where: tuple[str, str], headers: Any, part_bytes: int) -> None:
    """Uploads a file to a bucket and key, in parts if it is larger than one: one after the other, in the
    caller's thread. Threads of the library could not be ended, and the process would wait for them when it
    exits."""
    from s3transfer.futures import NonThreadedExecutor  # with the first file: control stores few
    from s3transfer.manager import TransferConfig, TransferManager

    parts = TransferConfig(multipart_threshold=part_bytes + 1, multipart_chunksize=part_bytes)
    with TransferManager(client, parts, executor_cls=NonThreadedExecutor) as transfers:
        transfers.upload(body, *where, extra_args=headers).result()  # type: ignore[arg-type]
