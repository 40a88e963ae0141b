"""The rules of the packet filter that keep neighbours from http workers, in the language of nft. Pure.

    from_here       a first packet from a worker's user to a port of another worker: refused
    from_elsewhere  a packet of another host, or of a container's network: refused
    whoever is not a worker's user, the agent for one, and the worker itself pass

Only first packets are judged by user: a closed connection's last ones belong to nobody any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_TABLE = """
table inet {name} {{
  set ports {{ type inet_service; {ports} }}
  set own {{ type inet_service . uid; {own} }}
  chain from_here {{
    type filter hook output priority 0; policy accept;
    oifname != "lo" accept
    tcp dport != @ports accept
    tcp flags & (syn | ack) != syn accept
    meta skuid < {first} accept
    meta skuid > {last} accept
    tcp dport . meta skuid @own accept
    reject with tcp reset
  }}
  chain from_elsewhere {{
    type filter hook input priority 0; policy accept;
    iifname != "lo" tcp dport @ports reject with tcp reset
  }}
}}
"""


def removed(name: str) -> str:
    """Returns the commands that remove the table, whether it is there or not."""
    return f"table inet {name}\ndelete table inet {name}\n"


def replaced(name: str, users: tuple[int, int], ports: Mapping[int, int | None]) -> str:
    """Returns the commands that replace the table. `users` are the first and the last of the workers' users,
    `ports` the protected ports, each with the user that may connect to it."""
    own = [f"{port} . {uid}" for port, uid in ports.items() if uid is not None]
    sets = {"ports": _elements(map(str, ports)), "own": _elements(own)}
    return removed(name) + _TABLE.format(name=name, first=users[0], last=users[1], **sets)


def protected(name: str, ports: Iterable[int]) -> str:
    return f"add element inet {name} ports {{ {', '.join(map(str, ports))} }}\n"


def admitted(name: str, ports: Iterable[int], uid: int) -> str:
    pairs = ", ".join(f"{port} . {uid}" for port in ports)
    return f"add element inet {name} own {{ {pairs} }}\n"


def _elements(texts: Iterable[str]) -> str:
    listed = ", ".join(texts)
    return f"elements = {{ {listed} }}" if listed else ""
