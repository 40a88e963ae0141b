"""The listener that a service manager hands over to a process, as systemd does for a socket unit."""

from __future__ import annotations

from collections.abc import MutableMapping

from stoker.cli.errors import CliError

FIRST_FD = 3
"""The number of the first descriptor, by the protocol (sd_listen_fds)."""


def listener_of_manager(environ: MutableMapping[str, str], pid: int) -> int | None:
    """Takes LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES out of the environment. Returns the descriptor of the
    one socket that is meant for this process, if any. Raises CliError for several sockets."""
    meant_for, count = environ.pop("LISTEN_PID", ""), environ.pop("LISTEN_FDS", "")
    environ.pop("LISTEN_FDNAMES", None)
    if meant_for != str(pid) or count in ("", "0"):
        return None
    if count != "1":
        raise CliError(
            f"the service manager hands over {count} sockets, and control takes one, for HTTP: leave one"
            " ListenStream= in its socket unit"
        )
    return FIRST_FD
