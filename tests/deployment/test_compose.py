"""packaging/compose, without an engine: what it names exists, and its services find each other."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import yaml

from tests.deployment.compose_files import COMPOSE, ROOT, in_checkout, mounts, services

KEYS = {"build", "image", "command", "ports", "volumes", "healthcheck", "depends_on", "environment"}
FILE = yaml.safe_load((COMPOSE / "compose.yaml").read_text())


def test_a_service_has_only_keys_of_the_specification_that_were_checked() -> None:
    assert FILE.keys() == {"name", "services"}
    assert services().keys() == {"site", "prometheus", "alertmanager", "grafana"}
    for name, service in services().items():
        assert service.keys() <= KEYS, name
        assert re.fullmatch(r"coldplate|docker\.io/[a-z]+/[a-z]+:v?\d+\.\d+\.\d+", service["image"]), name
        assert all(isinstance(each, str) for each in service.get("environment", {}).values()), name


def test_every_file_that_is_mounted_exists() -> None:
    for name, service in services().items():
        assert mounts(service), name
        assert [str(source) for source in mounts(service).values() if not source.exists()] == [], name


def test_every_port_is_of_the_loopback_interface_and_once() -> None:
    ports = [each for service in services().values() for each in service["ports"]]
    assert len(set(ports)) == len(ports) == len(services())
    for each in ports:
        address, outside, inside = each.split(":")
        assert address == "127.0.0.1" and outside == inside


def test_a_service_waits_only_for_services_that_are_there() -> None:
    for service in services().values():
        needed = service.get("depends_on", {})
        assert set(needed) <= services().keys()
        for name in needed if isinstance(needed, dict) else ():
            condition = needed[name]["condition"]
            assert condition == "service_started" or (
                condition == "service_healthy" and "healthcheck" in services()[name]
            )


def test_the_image_is_built_from_the_containerfile_and_plays_the_site_that_is_mounted() -> None:
    site = services()["site"]
    context = (COMPOSE / site["build"]["context"]).resolve()
    assert context == ROOT and (context / site["build"]["dockerfile"]).is_file()
    command, file, *listen = site["command"]
    assert (command, listen) == ("simulate", ["--web.listen-address", ":19500"])
    assert in_checkout(site, file) == ROOT / "tests" / "lab" / "demo" / "site.yaml"


def test_the_server_finds_its_configuration_rules_site_and_alertmanager() -> None:
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


def test_grafana_is_provisioned_with_the_server_and_all_boards() -> None:
    grafana = services()["grafana"]
    folder = in_checkout(grafana, "/etc/grafana/provisioning")
    (source,) = yaml.safe_load((folder / "datasources" / "coldplate.yml").read_text())["datasources"]
    url = urlsplit(source["url"])
    assert f"127.0.0.1:{url.port}:{url.port}" in services()[url.hostname]["ports"]
    (provider,) = yaml.safe_load((folder / "dashboards" / "coldplate.yml").read_text())["providers"]
    assert in_checkout(grafana, provider["options"]["path"]) == ROOT / "dashboards" / "generated"
    assert in_checkout(grafana, grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]).is_file()
