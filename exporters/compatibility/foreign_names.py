"""Metrics of other exporters as data: name, type, how the value follows from ours, and what to query instead."""

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum

from msgspec import Struct, field

from agent.catalogue import BY_NAME
from agent.model import Gpu, Kind, Labels, Series

MIB = 1.0 / 2**20
PERCENT = 100.0
MHZ = 1e-6
MILLI = 1e3
NANO = 1e9

WHOLE = "0"

WINDOW_SECONDS = 300.0

Rounding = Callable[[float], float]


class Recent(Enum):
    """When the recent growth of a counter is shown."""

    NONZERO = "while it is not 0"
    ZERO = "while it is 0"


class Term(Struct, frozen=True):
    """A metric of coldplate by name, times a factor. `labels` are the values of its own labels, in order; empty: any.

    `rate` takes the growth of a counter in a second, over the last seconds, instead of its value.
    """

    row: str
    labels: tuple[str, ...] = ()
    factor: float = 1.0
    rate: bool = False


class ForeignName(Struct, frozen=True):
    """A metric of the other exporter: the sum of `terms`, divided by that of `divisor` if there is one.

    It is served only while all its terms have values. `newest` means the label value, as a number, of the series whose
    value is highest, and 0 while only the first of `terms` has a value; `label` the value of that label, as a number.
    `recent` means the growth of its only term within the last minutes, while it is not 0 or while it is 0.
    `rounding` is that of the other exporter: one that counts in MiB shows no fractions of one.
    `note` says in which way it differs from the other exporter's own.
    """

    name: str
    kind: Kind
    help: str
    terms: tuple[Term, ...]
    rounding: Rounding | None = None
    divisor: tuple[Term, ...] = ()
    newest: str = ""
    label: str = ""
    recent: Recent | None = None
    note: str = ""

    @property
    def simple(self) -> Term | None:
        """Its only term, if the value is one of coldplate's times a factor."""
        computed = self.divisor or self.newest or self.label or self.recent or self.terms[0].rate
        return None if computed or len(self.terms) > 1 else self.terms[0]


class NotServed(Struct, frozen=True):
    """A name of the other exporter that is not served: why, and what to query instead; empty without a substitute."""

    name: str
    reason: str
    instead: str = ""


class KnownGpu(Struct, frozen=True):
    """The info labels of a GPU. `jobs` are the labels of the jobs that hold it alone, by slot.

    A slot is the number of a MIG instance; WHOLE is the GPU, or the only instance on it.
    """

    info: Mapping[str, str] = field(default_factory=dict)
    jobs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


class KnownNode(Struct, frozen=True):
    """What labels are made of. `host_labels` are the host's name under the label names that the configuration says.

    `further_labels` are the names of labels that are served only where the configuration asks for them.
    """

    host: str
    host_labels: Labels
    gpus: Mapping[Gpu, KnownGpu]
    mig_profiles: Mapping[str, str]
    """By the MIG instance's UUID."""
    further_labels: Collection[str] = ()

    def known_gpu(self, gpu: Gpu) -> KnownGpu:
        return self.gpus.get(gpu, _NOTHING)


_NOTHING = KnownGpu()

Labelling = Callable[[KnownNode, Series, str], Labels | None]
"""Labels of the other exporter's metric of that name for our series, in its order; None if it has no such series."""


class ForeignProfile(Struct, frozen=True):
    """A neighbour. `labels` are all that its series may have, for the documentation and for `compat-check`.

    `renamed` are labels that Prometheus or older versions of the neighbour write differently, and what they are here.
    """

    word: str
    title: str
    prefixes: tuple[str, ...]
    names: tuple[ForeignName, ...]
    labelling: Labelling
    labels: tuple[str, ...]
    not_served: tuple[NotServed, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)


def gauge(name: str, help: str, *terms: Term, rounding: Rounding | None = None, note: str = "") -> ForeignName:
    return ForeignName(name, Kind.GAUGE, help, terms, rounding, note=note)


def counter(name: str, help: str, *terms: Term, rounding: Rounding | None = None, note: str = "") -> ForeignName:
    return ForeignName(name, Kind.COUNTER, help, terms, rounding, note=note)


def written_bus_id(slot: str) -> str:
    """Return a PCI bus id as NVIDIA's tools write it, `00000000:1B:00.0`, of `0000:1b:00.0`; empty if unknown."""
    domain, colon, rest = slot.partition(":")
    return f"{domain.zfill(8)}:{rest}".upper() if colon else ""


_LONGEST_SUM = 2


def our_words(name: ForeignName) -> str:
    """Return a query for the neighbour's value; for one of many series, the row that they are of."""
    if name.newest:
        return name.terms[-1].row
    if name.recent:
        return f"increase({_term(name.terms[0])}[5m])"
    if len(name.terms) > _LONGEST_SUM:
        return name.terms[0].row
    above = _summed(name.terms)
    return f"{above} / {_summed(name.divisor)}" if name.divisor else above


def _summed(terms: Sequence[Term]) -> str:
    text = " + ".join(_term(term) for term in terms)
    factors = {term.factor for term in terms}
    factor = factors.pop() if len(factors) == 1 else 1.0
    if factor == 1.0:
        return text
    scale = f" * {factor:g}" if factor > 1 or not (1 / factor).is_integer() else f" / {_number(1 / factor)}"
    return f"({text}){scale}" if len(terms) > 1 else f"{text}{scale}"


def _number(value: float) -> str:
    return {2.0**20: "2^20", 1e6: "1e6"}.get(value, f"{value:g}")


def _term(term: Term) -> str:
    pairs = ", ".join(f'{label}="{value}"' for label, value in zip(BY_NAME[term.row].labels, term.labels, strict=False))
    series = f"{term.row}{{{pairs}}}" if pairs else term.row
    return f"rate({series}[1m])" if term.rate else series
