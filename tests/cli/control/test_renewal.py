"""Control's files read again while it runs: what is applied, and what waits for a restart."""

from __future__ import annotations

import asyncio
import dataclasses
import ssl
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from stoker.cli.control.declared import Declared, declared, plane_settings
from stoker.cli.control.renewal import APPLIED, Renewal
from stoker.cli.daemons.options import ControlOptions
from stoker.cli.data_folder import DataFolder
from stoker.control.config.settings import PlaneSettings
from stoker.control.config.tls import TlsFiles
from stoker.control.errors import Unavailable, UncertainCommit
from stoker.control.resources.declared.decision import Decision
from tests.certificates import make_certificate

ECHO = 'local_roots = ["."]\n[[endpoints]]\nid = "echo"\nimageName = "local:echo.py:handler"\n'


class Door:
    def __init__(self) -> None:
        self.shown: list[bytes] = []

    def renew(self, tls: TlsFiles) -> None:
        self.shown.append(tls.cert.read_bytes())


@dataclass
class Here:
    """A control's files, what it took over of them, and what storing it leads to."""

    folder: Path
    tls: TlsFiles | None = None
    decision: Decision = field(default_factory=Decision)
    error: Exception | None = None
    applied: list[Declared] = field(default_factory=list)
    door: Door = field(default_factory=Door)

    def __post_init__(self) -> None:
        self.config = self.folder / "stoker.toml"
        self.config.write_text("")
        self.options = ControlOptions(self.folder / "data", self.config, "127.0.0.1", 0, "127.0.0.1", 0)

    def renewal(self) -> Renewal:
        if self.tls is not None:
            self.options = dataclasses.replace(self.options, tls_cert=self.tls.cert, tls_key=self.tls.key)
        made = Renewal(declared(self.options, {}), lambda: declared(self.options, {}))
        made.doors.append(self.door)
        return made

    async def apply(self, found: Declared) -> Decision:
        if self.error is not None:
            raise self.error
        self.applied.append(found)
        return self.decision


@pytest.fixture
def here(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Here:
    caplog.set_level("INFO", "stoker.cli.control.renewal")
    (tmp_path / "echo.py").write_text("def handler(job):\n    return job\n")
    return Here(tmp_path)


async def test_a_renewed_certificate_is_shown_and_what_waits_for_a_restart_is_named(
    here: Here, caplog: pytest.LogCaptureFixture
) -> None:
    here.tls = make_certificate(here.folder).files
    made = here.renewal()
    pem = make_certificate(here.folder).pem
    here.config.write_text('functions = true\ngateway_domain = "x.example"\n[retention]\nasync_s = 60\n')
    await made.renew(here.apply)
    assert here.door.shown == [pem]
    assert made.certificate is not None
    assert made.certificate.pem == pem
    assert [found.config.retention.async_s for found in here.applied] == [60]
    here.config.write_text('gateway_domain = "x.example"\n')
    await made.renew(here.apply)
    assert caplog.messages == [
        "SIGHUP: no endpoint has changed; functions, retention applied; TLS files are applied to new"
        " connections; needs a restart: gateway_domain",
        "SIGHUP: no endpoint has changed; functions, retention applied; TLS files are applied to new"
        " connections; needs a restart: gateway_domain",
    ]


async def test_the_line_names_each_endpoint(here: Here, caplog: pytest.LogCaptureFixture) -> None:
    made = here.renewal()
    here.config.write_text(ECHO)
    here.decision = Decision(deleted=("old",))
    await made.renew(here.apply)
    assert [one.id for one in here.applied[0].endpoints] == ["echo"]
    assert caplog.messages == [
        "SIGHUP: endpoints old (deleted); local_roots applied; there are no TLS files;"
        " nothing needs a restart"
    ]


async def test_hosted_endpoints_of_the_options_are_read_again_too(here: Here) -> None:
    here.options = dataclasses.replace(here.options, hosted=("text-to-image",))
    made = here.renewal()
    here.config.write_text(ECHO + "[hosted.text-to-image]\nworkersMax = 2\n")
    await made.renew(here.apply)
    [found] = here.applied
    assert {one.id: (one.hosted, one.workers_max) for one in found.endpoints} == {
        "text-to-image": (True, 2),
        "echo": (False, 3),
    }
    settings = plane_settings(here.options, found, DataFolder(here.folder / "data"))
    assert settings.set_by_file == {"text-to-image": {"workersMax"}}


async def test_tls_begins_and_ends_with_a_restart(here: Here, caplog: pytest.LogCaptureFixture) -> None:
    made = here.renewal()
    files = make_certificate(here.folder).files
    here.config.write_text(f'[tls]\ncert = "{files.cert}"\nkey = "{files.key}"\n')
    await made.renew(here.apply)
    assert here.door.shown == []
    assert made.certificate is None
    served = here.renewal()
    here.config.write_text("")
    await served.renew(here.apply)
    assert caplog.messages == [
        "SIGHUP: no endpoint has changed; there are no TLS files; needs a restart: tls",
        "SIGHUP: no endpoint has changed; TLS files stay as they are; needs a restart: tls",
    ]


FIELDS = {
    "aliases": '[aliases]\nsay = "echo"\n',
    "functions": "functions = true\n",
    "hosted": "[hosted.art]\nworkersMax = 1\n",
    "local_roots": 'local_roots = ["handlers"]\n',
    "prices": "[prices]\ndevice_second_nano_usd = 1000\n",
    "registries": '[[registries]]\nid = "hub"\nusername = "me"\npassword = "nothing"\n',
    "retention": "[retention]\nasync_s = 60\nsync_s = 10\n",
    "allow_private_addresses": "allow_private_addresses = true\n",
    "gateway_ways": 'gateway_ways = ["tunnel"]\n',
}


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_that_applies_is_a_setting_that_changes(here: Here, name: str) -> None:
    """And of the others the settings of a running control never change."""
    (here.folder / "handlers").mkdir()
    image = '[[endpoints]]\nid = "echo"\nimageName = "an/image:1"\n'

    def read(text: str) -> PlaneSettings:
        here.config.write_text(text + image)
        found = declared(here.options, {})
        return plane_settings(here.options, found, DataFolder(here.folder / "data"))

    first, now = read(""), read(FIELDS[name])
    taken = replace(first)
    taken.take(now)
    assert now != first
    assert taken == (now if name in APPLIED else first)
    assert FIELDS.keys() >= APPLIED


BROKEN: dict[str, tuple[str | None, str]] = {
    "the certificate": ("", "half a cert"),
    "a field": ("unknown = 1\n", "unknown is not a known field"),
    "no TOML": ("[[endpoints]\n", "is not valid TOML"),
    "no file": (None, "cannot be read"),
    "a handler": (ECHO.replace("echo.py", "nowhere.py"), "there is none at"),
    "a schema": (ECHO + 'inputSchema = {type = "odd"}\n', "the input schema is not valid"),
    "a lock of weights": (ECHO + 'weights = ["no-such-entry"]\n', "weights of endpoint echo"),
    "a file of a lock": (ECHO + 'weights = ["one"]\nweightsLock = "no.lock"\n', "weights of endpoint echo"),
    "an alias": (ECHO + '[aliases]\nsay = "nobody"\n', "aliases.say must be the id of an endpoint"),
}


@pytest.mark.parametrize("broken", BROKEN)
async def test_files_that_are_wrong_change_nothing(
    here: Here, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    before = make_certificate(here.folder)
    here.tls = before.files
    made = here.renewal()
    text, why = BROKEN[broken]
    if text is None:
        here.config.unlink()
    else:
        here.config.write_text(text)
    if text == "":
        before.files.cert.write_text(why)
        why = "is not PEM"
    await made.renew(here.apply)
    assert (here.applied, here.door.shown) == ([], [])
    assert made.certificate is not None
    assert made.certificate.pem == before.pem
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("SIGHUP: nothing was changed: ")
    assert why in caplog.messages[0]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Unavailable("the disk is full"), "nothing was changed: the disk is full"),
        (UncertainCommit("it went away"), "not known whether the endpoints were changed, send it again"),
        (RuntimeError("a mistake"), "nothing was changed: a mistake"),
    ],
)
async def test_what_is_not_stored_shows_no_certificate_either(
    here: Here, caplog: pytest.LogCaptureFixture, error: Exception, said: str
) -> None:
    here.tls, here.error = make_certificate(here.folder).files, error
    made = here.renewal()
    before = made.certificate
    make_certificate(here.folder)
    await made.renew(here.apply)
    assert (here.door.shown, made.certificate) == ([], before)
    [record] = caplog.records
    assert said in record.getMessage()
    assert (record.exc_info is not None) is isinstance(error, RuntimeError), "a traceback for a mistake only"


async def test_hangups_while_all_is_read_lead_to_one_more_reading(here: Here) -> None:
    made = here.renewal()
    begun, go_on, done = asyncio.Semaphore(0), asyncio.Semaphore(0), asyncio.Semaphore(0)

    async def apply(found: Declared) -> Decision:
        begun.release()
        await go_on.acquire()
        done.release()
        return await here.apply(found)

    running = asyncio.create_task(made.run(apply))
    made.ask()
    await begun.acquire()
    made.ask()
    made.ask()
    go_on.release()
    await begun.acquire()
    go_on.release()
    for _ in range(2):
        await done.acquire()
    assert (len(here.applied), made._wanted.is_set()) == (2, False)
    running.cancel()
    await asyncio.wait([running])


def test_a_context_keeps_its_pair_where_the_new_one_does_not_fit(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    good, other = make_certificate(first), make_certificate(second)
    context = good.files.context()
    with pytest.raises(Exception, match="does not fit"):
        TlsFiles(good.files.cert, other.files.key).load_into(context)
    assert isinstance(context, ssl.SSLContext)
