"""docs/synthetic.md: the tables made from the scenario files and their schema."""

from agent.backends.synthetic.activity import TRAFFIC
from agent.backends.synthetic.loader import load_scenario, shipped_names
from agent.backends.synthetic.machines import TOPOLOGIES, RackPlant
from agent.backends.synthetic.scenario_schema import FAULTS, PHASES, Parameter
from tests.lab.bench.report import markdown, put_generated


def splice(document: str) -> str:
    traffic = f"`parallelism` of a job is one of {', '.join(f'`{word}`' for word in TRAFFIC)}.\n"
    document = put_generated(document, "scenarios", _shipped())
    return put_generated(document, "faults", f"{traffic}\n{_kinds()}\n{_machines()}")


def _shipped() -> str:
    rows = []
    for name in shipped_names():
        scenario = load_scenario(name)
        last_phases = (job.phases[-1].window.at for job in scenario.jobs if job.phases)
        onset = min((fault.window.at for fault in scenario.faults), default=max(last_phases, default=0.0))
        when = f"{onset:g} s" if onset else "at once"
        rows.append((f"`{name}`", scenario.description, when, " ".join(scenario.expect)))
    return markdown(("name", "what it shows", "onset", "what to watch"), rows)


def _kinds() -> str:
    phases = ((f"`{name}`", _parameters(kind.parameters), kind.help) for name, kind in PHASES.items())
    faults = []
    for name, fault in FAULTS.items():
        target = ", ".join(f"`{each}`" for each in fault.targets).replace("|", "` or `") or "the node"
        faults.append((f"`{name}`", target, _parameters(fault.parameters), fault.help))
    return (
        f"### Kinds of phase\n\n{markdown(('kind', 'parameters (default)', 'what it is'), phases)}\n"
        f"### Kinds of fault\n\n{markdown(('kind', 'done to', 'parameters (default)', 'what it does'), faults)}"
    )


def _parameters(parameters: dict[str, Parameter]) -> str:
    shown = []
    for name, parameter in parameters.items():
        default = parameter.default
        text = "required" if default is None else f"{default:g}" if isinstance(default, float) else default
        shown.append(f"`{name}` ({text})")
    return ", ".join(shown) or "none"


def _machines() -> str:
    head = ("topology", "GPUs", "power limit", "NVLinks a GPU", "InfiniBand ports", "optical ports", "leak detectors",
            "rack")  # fmt: skip
    rows = []
    for name, machine in TOPOLOGIES.items():
        ports = ", ".join(machine.ports) if len(machine.ports) < 8 else f"{machine.ports[0]} to {machine.ports[-1]}"
        parts = (", ".join(each) or "none" for each in (machine.optics, machine.leak_detectors))
        gpus, power = f"{machine.gpus} x {machine.model}", f"{machine.power_limit:g} W"
        rows.append((f"`{name}`", gpus, power, f"{machine.nvlinks or 'none'}", ports, *parts, _plant(machine.rack)))
    return f"### Topologies\n\n{markdown(head, rows)}"


def _plant(rack: RackPlant | None) -> str:
    """The parts of what serves the rack that faults can name."""
    if rack is None:
        return "none"
    parts = {"pumps": rack.pumps, "leak detectors": rack.leak_detectors, "feeds": rack.feeds}
    return "; ".join(f"{what} {', '.join(names)}" for what, names in parts.items())
