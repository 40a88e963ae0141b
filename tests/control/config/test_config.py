"""`stoker.toml`: what it becomes, and one sentence for each thing that can be wrong in it."""

from pathlib import Path

import pytest

from stoker.control.config.config import ConfigError, check_aliases, device_prices, load_config, to_endpoints
from stoker.control.config.sections import Config
from stoker.control.rules.quotas import Quota
from stoker.wire.messages import Price


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "handlers").mkdir()
    (tmp_path / "handlers" / "echo.py").write_text("def handler(job): return job.input\n")
    (tmp_path / "elsewhere.py").write_text("def handler(job): ...\n")
    return tmp_path


def load(folder: Path, text: str) -> Config:
    file = folder / "stoker.toml"
    file.write_text(text)
    return load_config(file)


ROOTS = 'local_roots = ["handlers"]\n'
ECHO = '[[endpoints]]\nid = "echo"\nimageName = "local:handlers/echo.py:handler"\n'


PROGRAM = """[[endpoints]]
id = "voice"
imageName = "local:handlers"
dockerStartCmd = ["python", "-u", "handler.py"]
concurrency = 8
"""


def test_a_program_that_speaks_the_worker_protocol(folder: Path) -> None:
    (endpoint,) = to_endpoints(load(folder, ROOTS + PROGRAM))
    assert (endpoint.run.kind, endpoint.run.command) == ("protocol", ("python", "-u", "handler.py"))
    assert endpoint.run.handler == f"{folder.resolve()}/handlers"
    assert endpoint.run.concurrency == 8


@pytest.mark.parametrize(
    ("more", "deadline"),
    [
        ("", 420),
        ("initTimeout = 60", 60),
        ('env = { RUNPOD_INIT_TIMEOUT = "900" }\ninitTimeout = 60', 900),
        ('env = { RUNPOD_INIT_TIMEOUT = "900", STOKER_INIT_TIMEOUT = "1200" }', 1200),
        ('env = { INIT_TIMEOUT = "5" }', 420),
    ],
)
def test_a_worker_is_ready_by_its_deadline(folder: Path, more: str, deadline: int) -> None:
    (endpoint,) = to_endpoints(load(folder, ROOTS + ECHO + more))
    assert endpoint.run.start_timeout_s == deadline


def test_an_endpoint_has_prices_and_a_schema_of_its_own(folder: Path) -> None:
    """Its price of a metric replaces that of all endpoints."""
    prices = "[prices]\ndevice_second_nano_usd = 760000\n"
    own = 'inputSchema = { type = "object", required = ["text"] }\nprices = { clips = 5, device_ms = 0 }\n'
    (endpoint,) = to_endpoints(load(folder, ROOTS + ECHO + own + prices))
    assert endpoint.run.schema == {"type": "object", "required": ["text"]}
    assert endpoint.run.prices == (Price("clips", 5), Price("device_ms", 0))
    (endpoint,) = to_endpoints(load(folder, ROOTS + ECHO + "prices = { clips = 5 }\n" + prices))
    assert endpoint.run.prices == (Price("clips", 5), Price("device_ms", 760))


IMAGE = '[[endpoints]]\nid = "far"\nimageName = "ghcr.io/acme/voice:1.2"\nconcurrency = 4\n'


def test_an_image_is_a_protocol_worker_of_its_own_command(folder: Path) -> None:
    (endpoint,) = to_endpoints(load(folder, IMAGE))
    assert (endpoint.run.kind, endpoint.run.image) == ("protocol", "ghcr.io/acme/voice:1.2")
    assert (endpoint.run.command, endpoint.run.handler) == ((), "")
    (endpoint,) = to_endpoints(load(folder, IMAGE + 'dockerStartCmd = ["python", "h.py"]'))
    assert (endpoint.run.kind, endpoint.run.command) == ("protocol", ("python", "h.py"))


def test_a_load_balancing_endpoint_runs_a_server(folder: Path) -> None:
    balanced = 'type = "LOAD_BALANCER"'
    for text in (ROOTS + PROGRAM, IMAGE):
        (endpoint,) = to_endpoints(load(folder, text + balanced))
        assert (endpoint.type, endpoint.run.kind, endpoint.scaler_type) == (
            "LOAD_BALANCER",
            "http",
            "REQUEST_COUNT",
        )
    for text in (ROOTS + ECHO, IMAGE + 'handler = "/app/h.py:run"\n'):
        with pytest.raises(ConfigError, match="runs an HTTP server and no handler"):
            load(folder, text + balanced)
    with pytest.raises(ConfigError, match="must be REQUEST_COUNT"):
        load(folder, ROOTS + PROGRAM + balanced + '\nscalerType = "QUEUE_DELAY"')


@pytest.mark.parametrize("domain", ["example.org", "lb.a-b.example.org", "internal", ""])
def test_a_domain_of_the_gateway(folder: Path, domain: str) -> None:
    assert load(folder, f'gateway_domain = "{domain}"').gateway_domain == domain


@pytest.mark.parametrize("domain", [".example.org", "Example.org", "example.org:80", "a b", "https://x"])
def test_no_domain(folder: Path, domain: str) -> None:
    with pytest.raises(ConfigError, match="gateway_domain"):
        load(folder, f'gateway_domain = "{domain}"')


def test_trusted_proxies_are_addresses_or_networks(folder: Path) -> None:
    assert load(folder, 'trusted_proxies = ["10.0.0.0/8", "::1"]').trusted_proxies == ("10.0.0.0/8", "::1")
    with pytest.raises(ConfigError, match=r"trusted_proxies\[0\]: 10.0.0.1/8 has host bits set"):
        load(folder, 'trusted_proxies = ["10.0.0.1/8"]')


def test_an_image_with_a_handler_is_a_python_worker(folder: Path) -> None:
    text = IMAGE.replace("concurrency = 4", 'handler = "/app/h.py:run"')
    (endpoint,) = to_endpoints(load(folder, text))
    run = endpoint.run
    assert (run.kind, run.image, run.handler) == ("python", "ghcr.io/acme/voice:1.2", "/app/h.py:run")


@pytest.mark.parametrize("name", ["a/b@sha256:" + "0" * 64, "localhost:5000/a/b:1", "python:3.12-slim"])
def test_names_of_images(folder: Path, name: str) -> None:
    (endpoint,) = to_endpoints(load(folder, IMAGE.replace("ghcr.io/acme/voice:1.2", name)))
    assert endpoint.run.image == name


def test_no_file_means_the_defaults() -> None:
    config = load_config(None)
    assert config == Config()
    assert (config.allow_private_addresses, config.s3, to_endpoints(config)) == (False, None, [])


def test_an_empty_file_means_the_defaults(folder: Path) -> None:
    assert load(folder, "") == Config()


def test_an_endpoint_with_what_it_does_not_say(folder: Path) -> None:
    (endpoint,) = to_endpoints(load(folder, ROOTS + ECHO))
    assert (endpoint.id, endpoint.name, endpoint.account, endpoint.version) == ("echo", "echo", "default", 1)
    assert endpoint.run.handler == f"{folder.resolve()}/handlers/echo.py:handler"
    assert (endpoint.workers_min, endpoint.workers_max, endpoint.idle_timeout_s) == (0, 3, 5)
    assert (endpoint.execution_timeout_ms, endpoint.hosted, endpoint.run.prices) == (600_000, False, ())


def test_what_a_file_does_not_say_of_limits_and_times(folder: Path) -> None:
    config = load(folder, ROOTS + ECHO)
    (endpoint,) = to_endpoints(config)
    assert (endpoint.ttl_ms, endpoint.max_attempts, endpoint.handler_retries) == (86_400_000, 3, 0)
    assert (config.retention.async_s, config.retention.sync_s) == (1_800, 60)
    assert (config.rate_limits.enabled, config.rate_limits.requests_per_worker) == (True, 50)


def test_a_whole_file(folder: Path) -> None:
    config = load(
        folder,
        """
        local_roots = ["handlers"]
        allow_private_addresses = true
        [s3]
        endpoint_url = "http://127.0.0.1:9000"
        public_endpoint = "https://objects.example"
        region = "eu-1"
        bucket = "results"
        access_id = "id"
        access_secret = "hush"
        [prices]
        device_second_nano_usd = 760000
        [retention]
        async_s = 604800
        sync_s = 10
        [rate_limits]
        enabled = false
        requests_per_worker = 7
        [aliases]
        other-echo = "echo"
        [[endpoints]]
        id = "echo"
        name = "Echo of all"
        type = "QUEUE"
        imageName = "local:handlers/echo.py:handler"
        env = { MODE = "loud" }
        workersMin = 1
        workersMax = 2
        idleTimeout = 60
        executionTimeoutMs = 5000
        ttlMs = 10000
        maxAttempts = 1
        retryHandlerErrors = 10
        quota = { jobsWaiting = 100, gpuSecondsPerDay = 3600 }
        """,
    )
    (endpoint,) = to_endpoints(config, account="acme")
    assert config.allow_private_addresses
    assert config.s3 is not None
    assert config.s3.access_secret.get_secret_value() == "hush"
    assert "hush" not in repr(config)
    assert endpoint.account == "acme"
    assert endpoint.name == "Echo of all"
    assert endpoint.run.env == {"MODE": "loud"}
    assert endpoint.quota == Quota(jobs_waiting=100, gpu_seconds_per_day=3600)
    assert (endpoint.workers_min, endpoint.workers_max, endpoint.idle_timeout_s) == (1, 2, 60)
    assert endpoint.execution_timeout_ms == 5_000
    assert (endpoint.ttl_ms, endpoint.max_attempts, endpoint.handler_retries) == (10_000, 1, 10)
    assert (config.retention.async_s, config.retention.sync_s) == (604_800, 10)
    assert (config.rate_limits.enabled, config.rate_limits.requests_per_worker) == (False, 7)
    assert endpoint.run.prices == device_prices(config) == (Price("device_ms", 760),)
    check_aliases(config, [endpoint])


def test_a_timeout_of_zero_is_the_default(folder: Path) -> None:
    (endpoint,) = to_endpoints(load(folder, ROOTS + ECHO + "executionTimeoutMs = 0\n"))
    assert endpoint.execution_timeout_ms == 600_000


def test_a_root_may_be_absolute_and_a_handler_may_lie_deep(folder: Path) -> None:
    deep = folder / "handlers" / "a" / "b.py"
    deep.parent.mkdir()
    deep.touch()
    text = f'local_roots = ["{folder}/handlers"]\n' + ECHO.replace("handlers/echo.py", str(deep))
    (endpoint,) = to_endpoints(load(folder, text))
    assert endpoint.run.handler == f"{deep.resolve()}:handler"


S3 = '[s3]\nendpoint_url = "http://x"\nbucket = "bbb"\naccess_id = "a"\naccess_secret = "hush"\n'

WRONG = [
    ("endpoints = [", ["not valid TOML"]),
    ("colour = 1", ["colour is not a known field", "local_roots", "endpoints"]),
    (ROOTS + ECHO + 'handlr = "x"', ["endpoints[0].handlr is not a known field", "imageName", "idleTimeout"]),
    (ROOTS + ECHO + "gpuCounts = 1", ["endpoints[0].gpuCounts is not a known field", "workersMax"]),
    (ROOTS + ECHO + "prices = { clips = -1 }", ["endpoints[0].prices.clips", "got -1"]),
    (ROOTS + ECHO + 'prices = { "a clip" = 1 }', ["endpoints[0].prices", "a clip"]),
    (ROOTS + ECHO + "prices = { clips = 0.5 }", ["endpoints[0].prices.clips", "got 0.5"]),
    (
        ROOTS + ECHO + "inputSchema = { properties = { side = { maximum = 3, default = 5 } } }",
        [
            "endpoints[0].inputSchema: the default of side",
            "side must be at most 3, got 5; allowed: 3 or less",
        ],
    ),
    (ROOTS + ECHO + 'inputSchema = "string"', ["endpoints[0].inputSchema", "an object"]),
    (
        ROOTS + ECHO + 'inputSchema = { type = "integr" }',
        ["endpoints[0].inputSchema: the input schema is not valid at $.type", "integr"],
    ),
    ("[prices]\nhour = 1", ["prices.hour is not a known field", "device_second_nano_usd"]),
    ("[prices]\ndevice_second_nano_usd = 7", ["prices.device_second_nano_usd", "multiple of 1000", "got 7"]),
    ("[prices]\ndevice_second_nano_usd = -1000", ["prices.device_second_nano_usd", "-1000"]),
    ("[prices]\ndevice_second_nano_usd = 1000.0", ["prices.device_second_nano_usd", "1000.0"]),
    ("allow_private_addresses = 1", ["allow_private_addresses", "boolean", "got 1"]),
    ('local_roots = "handlers"', ["local_roots", '"handlers"']),
    ('local_roots = ["nowhere"]', ["local_roots must name folders", "nowhere"]),
    ('local_roots = ["elsewhere.py"]', ["local_roots must name folders", "elsewhere.py"]),
    ('[[endpoints]]\nid = "x"', ["endpoints[0].imageName is required and missing"]),
    ("[[endpoints]]\nimageName = 3", ["endpoints[0].id is required", "endpoints[0].imageName", "got 3"]),
    (ROOTS + ECHO.replace('"echo"', '"Echo"'), ["endpoints[0].id", '"Echo"']),
    (ROOTS + ECHO.replace('"echo"', '"a/b"'), ["endpoints[0].id", '"a/b"']),
    (ROOTS + ECHO + ECHO, ["two endpoints have the id echo"]),
    (ROOTS + ECHO + 'type = "LB"', ["endpoints[0].type", "QUEUE", '"LB"']),
    (ROOTS + ECHO + "workersMin = 4", ["endpoints[0]", "workersMin must be at most workersMax", "4 and 3"]),
    (ROOTS + ECHO + "workersMax = -1", ["endpoints[0].workersMax", "-1"]),
    (ROOTS + ECHO + "workersMax = 1.5", ["endpoints[0].workersMax", "1.5"]),
    (ROOTS + ECHO + "idleTimeout = 0", ["endpoints[0].idleTimeout", "got 0"]),
    (ROOTS + ECHO + "idleTimeout = 3601", ["endpoints[0].idleTimeout", "3601"]),
    (ROOTS + ECHO + "executionTimeoutMs = 4999", ["executionTimeoutMs", "5000 to 604800000", "4999"]),
    *(
        (ROOTS + ECHO + f"{field} = {value}", [f"endpoints[0].{field}", bound, f"got {value}"])
        for field, value, bound in [
            ("ttlMs", 9_999, "10000"),
            ("ttlMs", 604_800_001, "604800000"),
            ("maxAttempts", 0, "1"),
            ("maxAttempts", 11, "10"),
            ("retryHandlerErrors", -1, "0"),
            ("retryHandlerErrors", 11, "10"),
        ]
    ),
    (ROOTS + ECHO + "quota = { jobsWaiting = 0 }", ["endpoints[0].quota.jobsWaiting", "got 0"]),
    (ROOTS + ECHO + "quota = { gpuHours = 1 }", ["quota.gpuHours is not a known field", "gpuSecondsPerDay"]),
    *(
        (f"[retention]\n{field} = {value}", [f"retention.{field}", bound, f"got {value}"])
        for field, value, bound in [
            ("async_s", 59, "60"),
            ("async_s", 604_801, "604800"),
            ("sync_s", 9, "10"),
            ("sync_s", 301, "300"),
            ("sync_s", 1.5, "integer"),
        ]
    ),
    ("[retention]\nhours = 1", ["retention.hours is not a known field", "async_s, sync_s"]),
    ("[rate_limits]\nenabled = 1", ["rate_limits.enabled", "boolean", "got 1"]),
    ("[rate_limits]\nrequests_per_worker = -1", ["rate_limits.requests_per_worker", "got -1"]),
    ("[rate_limits]\nrun = 5", ["rate_limits.run is not a known field", "requests_per_worker"]),
    (ROOTS + ECHO + 'env = { "A-B" = "x" }', ["env", "A-B"]),
    (ROOTS + ECHO + "env = { A = 1 }", ["endpoints[0].env.A", "string", "got 1"]),
    (ROOTS + ECHO.replace("local:", ""), ["imageName of endpoint echo", "local:<path>.py:<name>"]),
    (ROOTS + ECHO.replace(":handler", ""), ["imageName of endpoint echo", "local:<path>.py:<name>"]),
    (ROOTS + ECHO.replace(".py:handler", ":handler"), ["imageName of endpoint echo", "<path>.py"]),
    (ROOTS + ECHO.replace(":handler", ":3"), ["imageName of endpoint echo", "<name>"]),
    (ROOTS + ECHO.replace("echo.py", "none.py"), ["imageName of endpoint echo must be a file", "none.py"]),
    (ECHO, ["imageName of endpoint echo must lie below", "add local_roots"]),
    (PROGRAM, ["imageName of endpoint voice must lie below", "add local_roots"]),
    (
        ROOTS + ECHO.replace("handlers/echo.py:handler", "stoker.functions"),
        ["imageName of endpoint echo is local:stoker.functions", "code of callers", "functions = true"],
    ),
    (ROOTS + PROGRAM.replace("local:handlers", "handlers"), ['must read "local:<folder>"', 'got "handlers"']),
    *(
        (IMAGE.replace("ghcr.io/acme/voice:1.2", name), ["imageName of endpoint far", "tag or digest"])
        for name in ("voice", "localhost:5000/voice", "Voice:1", "a:1@sha256:00", "a b:1", "")
    ),
    (IMAGE + 'handler = "/app/h.py"', ["endpoints[0].handler", "/app/h.py"]),
    (
        ROOTS + ECHO + 'containerRegistryAuthId = "ours"',
        ["endpoints[0]: containerRegistryAuthId is for images", 'got "ours"'],
    ),
    (IMAGE + 'containerRegistryAuthId = "ours"', ["must be the id of a registry", "add [[registries]]"]),
    (
        '[[registries]]\nid = "ours"\nusername = "me"\npassword = 5\n',
        ["registries[0].password", "got a secret"],
    ),
    (ROOTS + ECHO + "limits = { memoryMb = 1 }", ["endpoints[0].limits.memoryMb", "got 1"]),
    (
        ROOTS + ECHO + "limits = { memory = 1 }",
        ["endpoints[0].limits.memory is not a known field", "memoryMb, cpus, pids, openFiles"],
    ),
    (ROOTS + ECHO + "initTimeout = 0", ["endpoints[0].initTimeout", "got 0"]),
    *[
        (
            ROOTS + ECHO + f'env = {{ {name} = "{value}" }}',
            [f"env.{name} must be whole seconds from 1 to 86400; got", value],
        )
        for name in ("RUNPOD_INIT_TIMEOUT", "STOKER_INIT_TIMEOUT")
        for value in ("0", "", "-5", "7 min", "1e3", "86401", "90.5", "٧")
    ],
    (ROOTS + ECHO + "maxJobs = 0", ["endpoints[0].maxJobs", "got 0"]),
    (IMAGE + 'preload = ["torch"]', ["endpoints[0]: preload is for handlers"]),
    (ROOTS + ECHO + 'handler = "/app/h.py:run"', ["endpoints[0]: handler is for images"]),
    (ROOTS + PROGRAM.replace("local:handlers", "local:handlers/none"), ["must be a folder", "none"]),
    (ROOTS + PROGRAM.replace('"-u"', '""'), ["endpoints[0].dockerStartCmd[1]", 'got ""']),
    (ROOTS + PROGRAM + 'preload = ["torch"]', ["endpoints[0]: preload is for handlers"]),
    (ROOTS + PROGRAM.replace("= 8", "= 0"), ["endpoints[0].concurrency", "got 0"]),
    (
        ROOTS + ECHO.replace("handlers/echo.py", "elsewhere.py"),
        ["must lie below", "elsewhere.py", "handlers"],
    ),
    (ROOTS + ECHO.replace("handlers/echo", "handlers/../elsewhere"), ["must lie below", "elsewhere.py"]),
    (S3.replace("http://x", "x:9"), ["s3", "endpoint_url must be an http or https URL", '"x:9"']),
    (S3 + 'public_endpoint = ""', ["s3", "public_endpoint must be an http or https URL"]),
    (S3.replace('"bbb"', '"b"'), ["s3.bucket", '"b"']),
    (S3.replace('"hush"', '["hush"]'), ["s3.access_secret", "a secret"]),
    (S3.replace('access_id = "a"\n', ""), ["s3.access_id is required and missing"]),
]


@pytest.mark.parametrize(("text", "parts"), WRONG)
def test_what_is_wrong_is_named(folder: Path, text: str, parts: list[str]) -> None:
    with pytest.raises(ConfigError) as raised:
        load(folder, text)
    message = str(raised.value)
    assert message.startswith(str(folder / "stoker.toml"))
    for word in parts:
        assert word in message
    assert "hush" not in message


def test_a_link_out_of_the_roots_is_followed_and_refused(folder: Path) -> None:
    (folder / "handlers" / "link.py").symlink_to(folder / "elsewhere.py")
    with pytest.raises(ConfigError, match="must lie below a folder of local_roots"):
        load(folder, ROOTS + ECHO.replace("echo.py", "link.py"))


def test_a_root_that_is_a_link_is_what_it_points_to(folder: Path) -> None:
    (folder / "linked").symlink_to(folder / "handlers")
    text = 'local_roots = ["linked"]\n' + ECHO.replace("handlers/", "linked/")
    (endpoint,) = to_endpoints(load(folder, text))
    assert endpoint.run.handler == f"{folder.resolve()}/handlers/echo.py:handler"


def test_a_file_that_is_not_there(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml cannot be read: No such file"):
        load_config(folder / "none.toml")


def test_a_file_that_is_not_text(folder: Path) -> None:
    (folder / "stoker.toml").write_bytes(b'x = "\xff"')
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_config(folder / "stoker.toml")


@pytest.mark.parametrize(
    ("alias", "message"),
    [
        ('pods = "echo"', "aliases.pods must not be a name of the management API, as in /v2/pods"),
        ('echo = "echo"', "aliases.echo is the id of an endpoint already"),
        ('other = "nobody"', 'aliases.other must be the id of an endpoint; got "nobody"; allowed: echo'),
    ],
)
def test_aliases_are_checked_against_all_endpoints(folder: Path, alias: str, message: str) -> None:
    config = load(folder, ROOTS + f"[aliases]\n{alias}\n" + ECHO)
    with pytest.raises(ConfigError, match=message):
        check_aliases(config, to_endpoints(config))
