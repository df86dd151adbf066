"""What the chart and the role have from elsewhere is current, and so are their descriptions and compose.yaml."""

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import yaml

from tests.deployment import chart_files, role_files
from tests.deployment.chart_files import CHART, SOURCES
from tests.deployment.compose_files import COMPOSE, ROOT, in_checkout, mounts, services
from tests.deployment.role_files import ROLE, VARS

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())


def test_generated_files_are_current() -> None:
    made = chart_files.contents()
    copies = {f"{folder}/{path.name}" for folder in SOURCES for path in (CHART / folder).iterdir()}
    assert {name: (CHART / name).read_text() for name in made.keys() | copies} == made, "run `make generate`"


def keys(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, bool, bool]]:
    """Each key, whether the values have it, and whether the schema knows it."""
    known = schema.get("properties", {})
    for name in dict.fromkeys([*values, *known]):
        inner = f"{path}.{name}".lstrip(".")
        yield inner, name in values, name in known
        below = values.get(name)
        if isinstance(below, dict) and "properties" in known.get(name, {}):
            yield from keys(below, known[name], inner)


def test_every_value_has_a_default_and_a_place_in_the_schema() -> None:
    unlike = [path for path, valued, known in keys(VALUES, SCHEMA) if not (valued and known)]
    assert set(unlike) == {
        "global",
        "resources.claims",
        *(f"seLinuxOptions.{each}" for each in ("type", "level", "role", "user")),
    }


def test_only_what_is_somebody_elses_is_open_in_the_schema() -> None:
    """`affinity` and its like are Kubernetes's own; everywhere else a misspelt key is refused."""
    opened = [
        path for path, schema in walk(SCHEMA) if schema.get("type") == "object" and "additionalProperties" not in schema
    ]
    theirs = (
        *("affinity", "tolerations", "extra", "claims", "relabelings", "metricRelabelings"),
        *("tlsConfig", "basicAuth", "authorization", "from", "global", "groups"),
    )
    assert [path for path in opened if not any(f".{each}" in path for each in theirs)] == []


def walk(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(schema, dict):
        if "type" in schema:
            yield path, schema
        for name, below in schema.items():
            yield from walk(below, path if name in ("properties", "items", "$defs") else f"{path}.{name}")


KEYS = {"build", "image", "command", "ports", "volumes", "healthcheck", "depends_on", "environment"}
FILE = yaml.safe_load((COMPOSE / "compose.yaml").read_text())


def test_a_service_has_only_checked_keys_and_a_loopback_port() -> None:
    assert FILE.keys() == {"name", "services"}
    assert services().keys() == {"site", "prometheus", "alertmanager", "grafana"}
    for name, service in services().items():
        assert service.keys() <= KEYS, name
        assert re.fullmatch(r"coldplate|docker\.io/[a-z]+/[a-z]+:v?\d+\.\d+\.\d+", service["image"]), name
        assert all(isinstance(each, str) for each in service.get("environment", {}).values()), name
        assert mounts(service), name
        assert [str(source) for source in mounts(service).values() if not source.exists()] == [], name
        needed = service.get("depends_on", {})
        assert set(needed) <= services().keys()
        for other in needed if isinstance(needed, dict) else ():
            healthy = needed[other]["condition"] == "service_healthy" and "healthcheck" in services()[other]
            assert healthy or needed[other]["condition"] == "service_started"
    ports = [each.split(":") for service in services().values() for each in service["ports"]]
    assert len({outside for _, outside, _ in ports}) == len(ports) == len(services())
    assert all(address == "127.0.0.1" and outside == inside for address, outside, inside in ports)


def test_the_image_is_built_from_the_containerfile_and_plays_the_mounted_site() -> None:
    site = services()["site"]
    context = (COMPOSE / site["build"]["context"]).resolve()
    assert context == ROOT and (context / site["build"]["dockerfile"]).is_file()
    command, file, *listen = site["command"]
    assert (command, listen) == ("simulate", ["--web.listen-address", ":19500"])
    assert in_checkout(site, file) == ROOT / "tests" / "lab" / "demo" / "site.yaml"


def test_server_and_grafana_find_all_that_they_are_configured_with() -> None:
    container = services()["prometheus"]
    config = yaml.safe_load(in_checkout(container, "/etc/prometheus/prometheus.yml").read_text())
    for each in config["rule_files"]:
        path = in_checkout(container, each)
        assert list(path.parent.glob(path.name)), each
    (scrape,) = config["scrape_configs"]
    site = urlsplit(scrape["http_sd_configs"][0]["url"])
    (target,) = config["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"]
    for host, port in ((site.hostname, site.port), target.split(":")):
        assert f"127.0.0.1:{port}:{port}" in services()[host]["ports"]
    grafana = services()["grafana"]
    folder = in_checkout(grafana, "/etc/grafana/provisioning")
    (source,) = yaml.safe_load((folder / "datasources" / "coldplate.yml").read_text())["datasources"]
    url = urlsplit(source["url"])
    assert f"127.0.0.1:{url.port}:{url.port}" in services()[url.hostname]["ports"]
    (provider,) = yaml.safe_load((folder / "dashboards" / "coldplate.yml").read_text())["providers"]
    assert in_checkout(grafana, provider["options"]["path"]) == ROOT / "dashboards" / "generated"
    assert in_checkout(grafana, grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]).is_file()


def part(name: str) -> Any:
    return yaml.safe_load((ROLE / name).read_text())


def test_the_list_of_keys_is_current_and_every_variable_is_described() -> None:
    assert VARS.read_text() == role_files.contents(), "run `make generate`"
    options = part("meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    defaults = part("defaults/main.yml")
    assert list(options) == list(defaults)
    told = {name: option["default"] for name, option in options.items() if "default" in option}
    assert told == {name: value for name, value in defaults.items() if name != "coldplate_peers"}


def test_tasks_use_no_variable_that_nobody_sets_and_notify_handlers_that_are_there() -> None:
    texts = [path.read_text() for folder in ("tasks", "handlers", "templates") for path in (ROLE / folder).iterdir()]
    used = set(re.findall(r"\bcoldplate_\w+", " ".join([*texts, VARS.read_text()])))
    inside = set(re.findall(r"(?:register: |^ +)(coldplate_\w+)(?=:|$)", "\n".join(texts), re.MULTILINE))
    known = part("defaults/main.yml").keys() | part("vars/main.yml").keys() | inside | {"coldplate_given"}
    assert used - known == set()
    assert part("defaults/main.yml").keys() - used == {"coldplate_rack_group"}  # which another default uses
    tasks = [each for path in (ROLE / "tasks").iterdir() for each in yaml.safe_load(path.read_text())]
    notified = {each["notify"] for each in tasks if "notify" in each}
    assert notified == {each["name"] for each in part("handlers/main.yml")}
