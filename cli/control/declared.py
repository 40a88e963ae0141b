"""The declarations of a control: its configuration with the files that this names, checked, and the settings
and endpoints that they and the options make. Read at the start, at a take-over and at SIGHUP."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.cli.control.agent_certificates import node_certificates
from stoker.cli.control.endpoints import declared_endpoints, with_hosted_aliases
from stoker.cli.control.sources import with_sources
from stoker.cli.control.weights import KnownWeights
from stoker.cli.daemons.options import ControlOptions
from stoker.cli.data_folder import DataFolder
from stoker.cli.errors import CliError
from stoker.control.config.config import device_prices, load_config, price_list, registry_auths
from stoker.control.config.sections import Config
from stoker.control.config.settings import PlaneSettings
from stoker.control.config.tls import TlsFiles
from stoker.control.rules.types import Endpoint
from stoker.wire.network_namespace import network_namespace
from stoker.wire.tls_files import PemFile, warnings_now

if TYPE_CHECKING:  # it comes where the configuration has certificates of nodes
    from stoker.control.nodes.certifying import NodeCertificates

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Declared:
    """The configuration, checked, and what it and the options declare."""

    config: Config
    endpoints: list[Endpoint]
    tls: TlsFiles | None
    nodes: NodeCertificates | None
    certificate: PemFile | None
    authority: PemFile | None


def declared(options: ControlOptions, variables: Mapping[str, str]) -> Declared:
    """Reads the configuration and the files that it names. Logs certificates that end soon."""
    config = load_config(options.config)
    endpoints, tls = declared_endpoints(config, options.hosted, variables), tls_files(options, config)
    certificate, authority = tls.certificates() if tls else (None, None)
    for warning in warnings_now(certificate, authority):
        log.warning("%s", warning)
    if options.reload:
        endpoints = with_sources(endpoints)
    nodes = node_certificates(
        config, None if options.grpc_plain else tls, DataFolder(options.data_dir.absolute()).authority
    )
    return Declared(config, endpoints, tls, nodes, certificate, authority)


def tls_files(options: ControlOptions, config: Config) -> TlsFiles | None:
    """Returns the TLS files of the options, else of the configuration, for HTTP and gRPC."""
    if options.tls_cert is None and options.tls_key is None:
        section = config.tls
        if section is None:
            if options.tls_client_ca is not None:
                raise CliError("--tls-client-ca needs --tls-cert and --tls-key as well")
            return None
        client_ca = options.tls_client_ca or (Path(section.client_ca) if section.client_ca else None)
        return TlsFiles(Path(section.cert), Path(section.key), client_ca)
    if options.tls_cert is None or options.tls_key is None:
        raise CliError("TLS needs both --tls-cert and --tls-key")
    return TlsFiles(options.tls_cert, options.tls_key, options.tls_client_ca)


def plane_settings(options: ControlOptions, declares: Declared, folder: DataFolder) -> PlaneSettings:
    """Returns the settings of the plane."""
    config = declares.config
    return PlaneSettings(
        retention_s=config.retention.async_s,
        retention_sync_s=config.retention.sync_s,
        allow_private_addresses=config.allow_private_addresses,
        aliases=with_hosted_aliases(declares.endpoints, config.aliases),
        price_list=price_list(config),
        registries=registry_auths(config),
        local_roots=config.local_roots,
        functions=config.functions,
        weights=KnownWeights(),
        local_base=str(options.config.resolve().parent) if options.config else "/",
        prices=device_prices(config),
        gateway_ways=config.gateway_ways,
        network_namespace=network_namespace(),
        set_by_file={name: frozenset(one.model_fields_set) for name, one in config.hosted.items()},
        spool=str(folder.spool),
        sources=str(folder.sources),
        not_sent=(str(options.config.resolve()),) if options.config else (),
    )
