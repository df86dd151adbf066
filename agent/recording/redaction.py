"""Replaces what identifies people and machines in a recording: UUIDs, serials, hosts, users, jobs and their kin.

A pseudonym is a keyed hash: the same in the files of many nodes, and not to be reversed without the key.
The label's name decides what is replaced; an unknown label is, since an alert's rule may have put anything into it.
"""

import re
from dataclasses import replace

from msgspec import structs

from agent.model import Backend, Entity, Gpu, Labels, NvLink, Rack
from agent.recording.file_records import RecordingHeader

KEPT = frozenset(
    """
    action alertname alertstate architecture backend board_id board_part cause chassis circuit clique component
    compute_capability compute_instance connector controller detector device dimm distance domain driver_version
    error expectation fan feed file firmware_version form_factor fstype gpu gpu_instance grade hca_type held high
    inhibited_by kernel kind lane layer level line link link_layer loop low machine media metric mig minor mode model
    notifier numa_node outcome part part_number pci port
    problem process profile python reason recorded resource rule_group sampling_lane scenario scheduler sensor
    setting severity shared side slot socket source split state sxid symbols thread type unit vbios vendor version xid
    """.split()  # noqa: SIM905 - a table to read, not a list to edit
)
"""Labels whose values say what something is, and not whose."""

KINDS = {
    "uuid": "uuid", "mig_uuid": "uuid", "previous_uuid": "uuid", "cluster_uuid": "cluster",
    "serial": "serial", "previous_serial": "serial", "job_id": "job", "array": "job", "name": "name", "user": "user",
    "account": "account", "partition": "partition", "namespace": "namespace", "pod": "pod", "container": "container",
    "mountpoint": "path",
    "equipment": "name",
    "summary": "text",
    "expectations": "path", "peer": "host", "url": "url", "rack": "rack", "instance": "host", "node": "host",
}  # fmt: skip
"""The word for the values of a label, by its name. The pseudonym begins with it."""

_SHORT = 4
"""Originals shorter than this are not looked for in free text: a job may be called `a`."""
_REMEMBERED = 4096
"""Originals that are looked for in free text."""
_WORD = r"(?<![\w.-]){}(?![\w-])"
_HOST = re.compile(r"//(?:[^/@]*@)?([\w.-]+)")
"""The host of a URL; an address in brackets is found by its own pattern."""
_PATTERNS = (
    ("uuid", re.compile(r"\b(?:GPU-|MIG-)?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")),
    ("url", re.compile(r"\b[a-z][a-z0-9+]*://[^\s'\",;)]+")),
    ("path", re.compile(r"(?<![\w/])/(?!(?:dev|proc|sys|run|var|etc|usr|opt)/)[^\s:;,'\")]+")),
    ("host", re.compile(r"\b(?<!\d\.)\d{1,3}(?:\.\d{1,3}){3}\b(?!\.\d)(?::\d+)?")),  # not a VBIOS's version
    ("host", re.compile(r"(?<![\w:])(?:[0-9a-f]{1,4}:){3,7}(?::?[0-9a-f]{1,4})+(?![\w:])", re.IGNORECASE)),
)  # fmt: skip


class Redaction:
    """Pseudonyms by one key. The same original has the same one wherever it stands."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._pseudonyms: dict[str, str] = {}
        self._issued: set[str] = set()
        self._finder: re.Pattern[str] | None = None

    def pseudonym(self, kind: str, original: str) -> str:
        """Return what stands for an original of this kind; what is empty stays so."""
        if not original:
            return ""
        import hmac  # it brings OpenSSL, a mebibyte that the daemon need not have

        digest = hmac.new(self._key, original.encode("utf-8", "surrogatepass"), "sha256").hexdigest()
        if kind == "uuid":
            family = original[:4] if original.startswith(("GPU-", "MIG-")) else ""
            pseudonym = f"{family}{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"
        elif kind == "serial":
            pseudonym = f"{int(digest[:12], 16) % 10**13:013d}"
        elif kind == "cluster":
            pseudonym = digest[:32]
        else:
            pseudonym = f"{kind}-{digest[:10]}"
        host = _HOST.search(original) if kind == "url" else None
        if host is not None and not host[1].isalpha():  # sentences have plain words as well, such as `alertmanager`
            self.pseudonym("host", host[1])
        if len(original) >= _SHORT and len(self._pseudonyms) < _REMEMBERED and original not in self._pseudonyms:
            self._pseudonyms[original] = pseudonym
            self._issued.add(pseudonym)
            self._finder = None
        return pseudonym

    def entity(self, entity: Entity) -> Entity:
        """Return an entity without what identifies it; its place on the node stays."""
        if isinstance(entity, Gpu):
            return replace(entity, uuid=self.pseudonym("uuid", entity.uuid))
        if isinstance(entity, NvLink):
            gpu = self.entity(entity.gpu)
            assert isinstance(gpu, Gpu)
            return replace(entity, gpu=gpu)
        if isinstance(entity, Rack):
            return Rack(self.pseudonym("rack", entity.name))
        return Backend(self.text(entity.name)) if isinstance(entity, Backend) else entity

    def labels(self, labels: Labels) -> Labels:
        """Return labels with what stands for their values."""
        return tuple((name, value if name in KEPT else self._value(name, value)) for name, value in labels)

    def text(self, text: str) -> str:
        """Free text without originals that were met, and without what looks like an identifier or an address."""
        text = self.without_known(text)
        for kind, pattern in _PATTERNS:
            text = pattern.sub(lambda match, kind=kind: self._unless_issued(kind, match[0]), text)  # type: ignore[misc]  # kind is bound
        return self.without_known(text)  # a host may follow its URL

    def without_known(self, text: str) -> str:
        """Free text without originals that were met."""
        if self._finder is None and self._pseudonyms:
            longest_first = sorted(map(re.escape, self._pseudonyms), key=len, reverse=True)
            self._finder = re.compile(_WORD.format(f"(?:{'|'.join(longest_first)})"))
        return text if self._finder is None else self._finder.sub(lambda match: self._pseudonyms[match[0]], text)

    def header(self, header: RecordingHeader) -> RecordingHeader:
        """Return a header without the node's name and the job; of the command, only the program is kept."""
        program = header.command[:1] and (header.command[0].rpartition("/")[2],)
        return structs.replace(
            header,
            node=self.pseudonym("host", header.node),
            job=self.pseudonym("job", header.job),
            command=tuple(self.text(word) for word in program),
            redacted=True,
        )

    def _value(self, name: str, value: str) -> str:
        if name == "mountpoint" and value in ("/", "/boot", "/home", "/tmp", "/var", "/usr", "/opt", "/scratch"):  # noqa: S108
            return value
        return self.pseudonym(KINDS.get(name, "label"), value)

    def _unless_issued(self, kind: str, text: str) -> str:
        return text if text in self._issued else self.pseudonym(kind, text)
