"""Writes docs/scenarios.md from the scenario files and the schema, so that neither can drift from it."""

from __future__ import annotations

from agent.backends.synthetic.activity import TRAFFIC
from agent.backends.synthetic.loader import load_scenario, shipped_scenarios
from agent.backends.synthetic.machines import TOPOLOGIES, RackPlant
from agent.backends.synthetic.scenario_schema import FAULTS, PHASES, Parameter

_HEAD = """# Scenarios

<!-- Generated from the scenarios and their schema by `make generate`. Do not edit. -->

A scenario is a YAML file that defines the machine of a synthetic node, what runs on it, and what goes wrong.
Use a shipped one by name, or your own file by path:

    coldplate run --backend synthetic --scenario straggler
    coldplate run --backend synthetic --scenario ./drill.yaml

The same scenario and seed give the same readings at the same times, at any sampling interval and after any
restart. Every reading is computed for its time, so a node that has run for a day opens at once and its
counters continue where they were. While devices are synthetic, `coldplate_synthetic_info` is present. At the start the
log lists the faults to come, and when:

    msg="scheduled fault: straggler of GPU 5 starts at 14:03:20 UTC, in 120 s"

Nothing here was recorded on hardware. The levels and spreads follow published and measured figures; heat, power
brakes, XIDs, ECC and link faults are injected.
"""

_FORMAT = """## The file

```yaml
description: One line on what it shows.     # required
topology: dgx-h100                          # required
seed: 1                                     # device identities, noise, differences between chips
jobs:
  - id: "4711"                              # required; shown by coldplate_gpu_job_info
    gpus: 0-3                               # required: a number, a list, a range, or all
    name: llama-pretrain
    user: ada
    account: research
    partition: h100
    scheduler: slurm
    parallelism: data                       # {parallelisms}
    memory: 80%                             # of each GPU's memory
    start: 0s
    end: 1h                                 # absent: with the last phase
    phases:                                 # one after the other; only the last may have no duration
      - {{kind: loading, duration: 30s}}
      - {{kind: training, power: 95%}}
faults:
  - {{kind: straggler, gpu: 3, at: 120s, duration: 10m, repeat: 1h, utilization: 5%}}
expect:                                     # for people
  - GpuImbalance for job 4711.
```

Times take `ms`, `s`, `m`, `h`, `d`, power `W`, `kW`, `MW`, bandwidth `Gb/s`, `GB/s`, ratios `%`; a bare number is
in seconds, watts, bytes per second, or a ratio from 0 to 1. A fault without `duration` lasts for good. With `repeat`
(at least 10 s) it comes again that long after each onset. A key or word that is unknown is an error that names
the file, the key and the nearest known one.

Two jobs may not hold a GPU at the same time. MIG is off on synthetic GPUs.
"""

_NOTES = """## What is modelled

* Load drives power; power drives temperature (25 s time constant, up to 14 degrees between slots); heat above the limit
  brings lower clocks, the reason for them, and throttled time: first by the driver, then by the hardware.
* A GPU that waits in a collective shows full utilization at 22% of its power limit.
* What a GPU does at 0 s it has done for long: its heat is in balance. Jobs are told in the families of real ones,
  with start, GPUs, processes and energy.
* Energy is the exact integral of power. Power is a mean over 1 s (A100: instantaneous), the utilization that of the
  last whole sixth of a second in whole percent, SM, tensor and DRAM activity means over the last second.
* NVLink, PCIe and InfiniBand counters follow the job's parallelism. A port that is down carries nothing; the job does
  not wait for it.
* Optical modules are 400GBASE-DR4. Light sets the share of wrong bits: 1e-10 while there is enough of it, 2e-8 after
  4 dB are lost, 6e-6 after 5, 2e-4 after 6, where the code is at its end. Codewords with more than 15 wrong symbols
  are lost. The link stays up, and the job does not notice.
* The water of a tray flows steadily and takes up the heat of its modules, some 8 degrees. It warms within minutes (60 s
  time constant), and the GPUs with it, from the fault's onset on.
* On `nvl72-rack` the agent reads what serves the rack as well, a distribution unit and power shelves: Redfish documents
  of its own process (services `cdu` and `power-shelves`), which the reader of real ones reads in one agent of the rack.
  The rack is eighteen nodes like this one. One pump of two keeps 90% of the flow; without any, 2% flow, and all GPUs
  throttle. `leak` names the unit's detectors like the tray's. Without `rack.name` it is the rack `synthetic`; where
  `rack.equipment` is configured, that is read instead.
* Node power is the GPUs' with losses, plus a constant, in steps of 25 W with 1.5% of noise.
* XID errors come due when a channel is read. Those before a restart of the worker are not told again.
* While `hang` holds, a read blocks until the source is closed, or until the fault's duration has passed.
* A GPU for which `hang` or `lost` holds when the devices are opened (`at: 0s`, or a worker that was started again) does
  not say who it is: it is shown by its index alone, and joins when the fault is over.
"""


def render() -> str:
    """Return the document."""
    return "\n".join(
        [_HEAD, _shipped(), _FORMAT.format(parallelisms=", ".join(TRAFFIC)), _kinds(), _machines(), _NOTES]
    )


def _shipped() -> str:
    rows = ["## Shipped scenarios", "", "| name | what it shows | onset | what to watch |", "|---|---|---|---|"]
    for name, description in shipped_scenarios():
        scenario = load_scenario(name)
        onset = min((fault.window.at for fault in scenario.faults), default=None)
        when = "at once" if onset is None else f"{onset:g} s"
        rows.append(f"| `{name}` | {description} | {when} | {' '.join(scenario.expect)} |")
    return "\n".join([*rows, ""])


def _kinds() -> str:
    rows = ["## Kinds of phase", "", "| kind | parameters (default) | what it is |", "|---|---|---|"]
    rows += [f"| `{name}` | {_parameters(kind.parameters)} | {kind.help} |" for name, kind in PHASES.items()]
    rows += [
        "",
        "## Kinds of fault",
        "",
        "| kind | done to | parameters (default) | what it does |",
        "|---|---|---|---|",
    ]
    for name, fault in FAULTS.items():
        target = ", ".join(f"`{each}`" for each in fault.targets).replace("|", "` or `") or "the node"
        rows.append(f"| `{name}` | {target} | {_parameters(fault.parameters)} | {fault.help} |")
    return "\n".join([*rows, ""])


def _parameters(parameters: dict[str, Parameter]) -> str:
    shown = []
    for name, parameter in parameters.items():
        default = parameter.default
        text = "required" if default is None else f"{default:g}" if isinstance(default, float) else default
        shown.append(f"`{name}` ({text})")
    return ", ".join(shown) or "none"


def _machines() -> str:
    rows = [
        "## Topologies",
        "",
        "| topology | GPUs | power limit | NVLinks a GPU | InfiniBand ports | optical ports | leak detectors | rack |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, machine in TOPOLOGIES.items():
        ports = ", ".join(machine.ports) if len(machine.ports) < 8 else f"{machine.ports[0]} to {machine.ports[-1]}"
        gpus = f"{machine.gpus} x {machine.model}"
        links = machine.nvlinks or "none"
        parts = " | ".join(", ".join(each) or "none" for each in (machine.optics, machine.leak_detectors))
        power = f"{machine.power_limit:g} W"
        rows.append(f"| `{name}` | {gpus} | {power} | {links} | {ports} | {parts} | {_plant(machine.rack)} |")
    return "\n".join([*rows, ""])


def _plant(rack: RackPlant | None) -> str:
    """The parts of what serves the rack that faults can name."""
    if rack is None:
        return "none"
    parts = {"pumps": rack.pumps, "leak detectors": rack.leak_detectors, "feeds": rack.feeds}
    return "; ".join(f"{what} {', '.join(names)}" for what, names in parts.items())
