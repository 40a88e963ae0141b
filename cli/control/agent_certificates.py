"""The certificates of nodes, as control's configuration has them: with which authority, and whether each
node needs one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.cli.errors import CliError
from stoker.control.config.sections import Config
from stoker.control.config.tls import TlsFiles
from stoker.wire.tls_files import PemFile, valid_until

if TYPE_CHECKING:
    from stoker.control.nodes.certifying import NodeCertificates


def node_certificates(config: Config, tls: TlsFiles | None, folder: Path) -> NodeCertificates | None:
    """Returns the certificates of nodes, signed by the authority in `folder`; None where the configuration
    has none. `tls` are the files of the agents' port. Raises CliError and TlsFilesUnusable."""
    section = config.agent_certificates
    if section is None:
        return None
    if tls is None:
        raise CliError(
            "[agent_certificates] is for agents that connect over TLS: make a certificate with `stoker ca"
            " issue`, and give it as --tls-cert and --tls-key"
        )
    if tls.client_ca is not None:
        raise CliError(
            "[agent_certificates] demands certificates of the authority of `stoker ca`, and client_ca (or"
            " --tls-client-ca) those of another one: give one of the two"
        )
    from stoker.cli.control.authority_files import AuthorityFiles  # with X.509, which few controls sign
    from stoker.control.nodes.certifying import NodeCertificates

    return NodeCertificates(
        AuthorityFiles(folder).read, section.life_s, time.time, required=section.mode == "require"
    )


def ends_of(served: PemFile | None, nodes: NodeCertificates | None) -> dict[str, float]:
    """Returns when the certificates in force end, by their names, in seconds since the epoch. `served` is
    that of control's ports."""
    found = {} if served is None else {"control": valid_until(served).timestamp()}
    return found if nodes is None else {**found, "authority": nodes.authority.ends_at}
