"""The chart rendered by the real helm, and what its agents would read."""

import functools
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.deployment.chart_files import CHART
from tests.servers import need

VALUES = Path(__file__).with_name("values")
VALUE_SETS = sorted(path.stem for path in VALUES.glob("*.yaml"))
Loader = yaml.CSafeLoader
"""The parser in C: the dashboards are half a megabyte."""


def helm(*arguments: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
    """helm without a cluster, whose caches are nowhere."""
    program = need("helm", left_out="NOTHING of the chart is rendered here")
    nowhere = {f"HELM_{each}_HOME": str(VALUES / "nowhere") for each in ("CACHE", "CONFIG", "DATA")}
    return subprocess.run(
        [program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        input=given,
        env={**os.environ, **nowhere, "KUBECONFIG": os.devnull},
    )


def render(values: str, *arguments: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
    """A value set as manifests; `--values -` reads more of them from `given`."""
    file = VALUES / f"{values}.yaml"
    return helm("template", "cold", CHART, "--namespace", "gpus", "--values", file, *arguments, given=given)


@functools.cache
def manifests(values: str) -> tuple[dict[str, Any], ...]:
    return objects(render(values))


def objects(done: subprocess.CompletedProcess[str]) -> tuple[dict[str, Any], ...]:
    assert done.returncode == 0, done.stderr
    return tuple(each for each in yaml.load_all(done.stdout, Loader) if each)


def of_kind(found: tuple[dict[str, Any], ...], kind: str) -> list[dict[str, Any]]:
    return [each for each in found if each["kind"] == kind]


def pod(found: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    (daemons,) = of_kind(found, "DaemonSet")
    return daemons["spec"]["template"]["spec"]


def container(found: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    (only,) = pod(found)["containers"]
    return only


def written(found: tuple[dict[str, Any], ...], node: str, folder: Path, racks: Mapping[str, str] | None = None) -> Path:
    """The configuration file of one node, as the pod's own script writes it; `racks` is the inventory's ConfigMap."""
    maps = {each["metadata"]["name"]: each["data"] for each in of_kind(found, "ConfigMap")}
    data = {"shared": maps[of_kind(found, "DaemonSet")[0]["metadata"]["name"]], "made": {}}
    if racks is None:
        racks = next((each for name, each in maps.items() if name.endswith("-racks")), None)
    if racks is not None:
        data["racks"] = dict(racks)
    (init,) = pod(found)["initContainers"]
    script = init["args"][0]
    for name, files in data.items():
        (folder / name).mkdir(parents=True)
        for file, text in files.items():
            (folder / name / file).write_text(text)
    for name in ("shared", "made", "racks"):
        script = script.replace(f"/{name}/", f"{folder / name}/")
    subprocess.run(
        [*init["command"], script], check=True, capture_output=True, env={"NODE_NAME": node, "PATH": "/usr/bin:/bin"}
    )
    return folder / "made" / "coldplate.yaml"
