"""The listener that a service manager hands over."""

from __future__ import annotations

import pytest

from stoker.cli.errors import CliError
from stoker.cli.processes.handed_over import listener_of_manager


def environment(**more: str) -> dict[str, str]:
    return {"PATH": "/bin", "LISTEN_PID": "7", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "http", **more}


def test_one_socket_is_taken_and_no_child_takes_it_again() -> None:
    environ = environment()
    assert listener_of_manager(environ, 7) == 3
    assert environ == {"PATH": "/bin"}


@pytest.mark.parametrize("environ", [{}, environment(LISTEN_PID="8"), environment(LISTEN_FDS="0")])
def test_a_socket_for_nobody_or_another_process_is_left(environ: dict[str, str]) -> None:
    assert listener_of_manager(environ, 7) is None


def test_several_sockets_are_refused() -> None:
    with pytest.raises(CliError, match="hands over 2 sockets, and control takes one, for HTTP"):
        listener_of_manager(environment(LISTEN_FDS="2"), 7)
