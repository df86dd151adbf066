"""A configuration that cannot be used is refused with its place and remedy; the default file and its defaults."""

import errno
import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from agent import cli
from agent.config.default_file import default_file
from agent.config.reading import keys_for_a_restart, load, parse
from agent.config.schema import Config, ConfigError, LoginConfig
from agent.lib.http_target import HttpLogin
from agent.rack.rack_options import RackOptions
from agent.sampler.schedule import Settings
from agent.wiring.assembly import dry_start
from agent.wiring.identity import LOGIN, login_of
from agent.wiring.peering import load_rack
from agent.wiring.sources import load_settings
from tests.each import for_each
from tests.lab.generate import configuration_table
from tests.lab.generate.configuration_table import KeyEntry, entries


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text, "c.yaml")
    return str(caught.value)


def test_everything_is_optional() -> None:
    assert parse("", "c.yaml") == parse("# nothing\n", "c.yaml") == Config()
    assert load(Path("/nowhere/at/all.yaml"), must_exist=False) == Config()
    assert parse("sampling:\nweb:\n", "c.yaml") == Config()


PASSWORD = "hush"
URL = f"https://{'long' * 30}:{PASSWORD} {PASSWORD}?{PASSWORD}@host.example/runbooks?token={PASSWORD}"


def test_no_error_repeats_the_password_of_a_url_in_any_key(tmp_path: Path) -> None:
    """The errors of a start go to the journal; nobody thinks of those as secret."""
    errors = []
    for key in [key for key, field in entries() if field.key is not None]:
        for value in (URL, [URL], f"{URL}\a"):
            document: Any = value
            for part in reversed(key.replace("*", "x").split(".")):
                document = {part: document}
            document.setdefault("rules", {}).setdefault("files", [])  # the pack takes a while
            try:
                dry_start(parse(yaml.safe_dump(document), "c.yaml"), tmp_path)
            except ConfigError as error:
                errors.append(str(error))
    assert len(errors) > 300
    assert [error for error in errors if PASSWORD in error] == []


@for_each("key", ["notify.webhook.urls", "notify.alertmanager.urls"])
def test_no_error_repeats_the_path_of_a_webhook(key: str) -> None:
    """It is all that protects many of them."""
    section, name = key.rsplit(".", 1)
    inner = f"{{{section.partition('.')[2]}: {{{name}: VALUE}}}}"
    for value in ('"https://hook.example/hush"', '["https://hook.example/hush\\a"]'):
        assert PASSWORD not in refusal(f"notify: {inner.replace('VALUE', value)}")


def test_quantities_take_units() -> None:
    config = parse("sampling: {fast: 250ms, slow: 1m}\nrack: {name: r1, power_budget: 40.8kW}", "c.yaml")
    assert (config.sampling.fast, config.sampling.slow, config.rack.power_budget) == (0.25, 60.0, 40_800.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("samplng: {}", "c.yaml:1: samplng: unknown key; did you mean 'sampling'?"),
        ("\nsampling:\n  fats: 1s\n", "c.yaml:3: sampling.fats: unknown key; did you mean 'fast'?"),
        ("web: {zzz: 1}", ("c.yaml:1: web.zzz: unknown key; use one of listen, config_file, telemetry_path, "
                          "enable_lifecycle, max_connections")),
        ("recorder: {dump_on: [panic]}", "c.yaml:1: recorder.dump_on: 'panic' is unknown; use any of firing, xid"),
        ("rules: {files: builtin}", "c.yaml:1: rules.files: must be a list, found text; write files: [builtin]"),
        ("rules: {interval: 100ms}", "c.yaml:1: rules.interval: 100ms is out of range; use 1s to 60s"),
        ("rules:\n  override:\n    Hot: {fur: 1m}",
         "c.yaml:3: rules.override.Hot.fur: unknown key; did you mean 'for'?"),
        ("rules: {override: {Hot: {for: 5}}}",
         ("c.yaml:1: rules.override.Hot.for: 5 is not a duration; write a number with one of the units "
          "ms, s, m, h, d, such as 15s")),
        ("rules: {override: {Hot: {thresholds: {a: 1}}}}",
         "c.yaml:1: rules.override.Hot.thresholds: 'a' is not a number"),
        ("rules: {override: {Hot: {thresholds: 5}}}",
         "c.yaml:1: rules.override.Hot.thresholds: must be a mapping from one number to another, such as {0.5: 0.4}"),
        ("notify: {alertmanager: {url: x}}", "c.yaml:1: notify.alertmanager.url: unknown key; did you mean 'urls'?"),
        ("notify: {resend: 0s}", "c.yaml:1: notify.resend: 0ms is out of range; use 1s to 1h"),
        ("sampling: {fast: 1}", ("c.yaml:1: sampling.fast: 1 is not a duration; write a number with one of the "
                                "units ms, s, m, h, d, such as 15s")),
        ("sampling: {fast: 1kW}", ("c.yaml:1: sampling.fast: 'kW' is not a unit of duration; use one of ms, s, m, h, "
                                  "d, such as 15s")),
        ("rack: {name: r, power_budget: 40s}", ("c.yaml:1: rack.power_budget: 's' is not a unit of power limit; use "
                                               "one of W, kW, MW, VA, kVA, MVA, such as 40.8kW, 45kVA or {amperes: 60, "
                                               "volts: 415, phases: 3}")),
        ("rack: {name: r, power_budget: 0kW}", ("c.yaml:1: rack.power_budget: '0kW' is 0 W; give more than 0 and at "
                                               "most 1e+08 W")),
        ('rack: {name: r, feeds: {"a\u00a0": 20kW}}',
         (r"c.yaml:1: rack.feeds: 'a\xa0': the other agents reject this name; use printable characters, with spaces "
          "only between them")),
        ('rack: {name: r, feeds: {"a ": 20kW}}',
         ("c.yaml:1: rack.feeds: 'a ': the other agents reject this name; use printable characters, with spaces only "
          "between them")),
        ("rack:\n  name: r\n  feeds:\n    a: {amperes: 60A, volts: 415, phases: 3}",
         "c.yaml:4: rack.feeds.a: amperes: '60A' is not a number; give it without a unit"),
        ("rack: {name: r, feeds: {a: {amperes: 60, volts: 415}}}",
         ("c.yaml:1: rack.feeds.a: phases is missing; write {amperes: 60, volts: 415, phases: 3}, with derate: 0.8 "
          "if needed")),
        ("rack: {name: r, feeds: {a: {amperes: 60, volts: 415, phases: 2}}}",
         "c.yaml:1: rack.feeds.a: phases: 2 is neither 1 nor 3; with 3, volts are phase to phase"),
        ("rack: {name: r, feeds: {a: {amperes: 60, volts: 415, phases: 3, derate: 80}}}",
         "c.yaml:1: rack.feeds.a: derate: 80 is out of range; give the usable share, such as 0.8"),
        ("rack: {name: r, feeds: {1: 30kW}}", "c.yaml:1: rack.feeds: a key in it is not a string; put it in quotes"),
        ("rack: {name: r, feeds: {a: {amperes: 180, volts_dc: 800, phases: 3}}}",
         ("c.yaml:1: rack.feeds.a: unknown key 'phases'; write {amperes: 180, volts_dc: 800}, with derate: 0.8 if "
          "needed")),
        ("rack: {name: r, breakers: {a: {class: ul488, rating: 30kW}}}",
         ("c.yaml:1: rack.breakers.a.class: 'ul488' is unknown; use one of ul489, iec60947-2, iec60898-b, iec60898-c, "
         "iec60898-d, electronic")),
        ("rack: {name: r, breakers: {a: {class: ul489}}}",
         "c.yaml:1: rack.breakers.a.rating: is missing; give it"),
        ("rack: {name: r, breakers: {a: {rating: 30kW}}}",
         ("c.yaml:1: rack.breakers.a.class: is missing; give one of ul489, iec60947-2, iec60898-b, iec60898-c, "
          "iec60898-d, electronic")),
        ("rack: {name: r, breakers: {a: {class: ul489, rating: 30kW, share: 1.5}}}",
         "c.yaml:1: rack.breakers.a.share: 1.5 is out of range; use more than 0 and up to 1"),
        ("rack: {name: r, breakers: {a: {class: ul489, rating: 30kW, long_delay: 12s}}}",
         ("c.yaml:1: rack.breakers.a.long_delay: is a setting of electronic trip units; set class: electronic, or "
         "remove the key")),
        ("rack: {name: r, shelves: {count: 8, rating: 33kW, spare: 8}}",
         "c.yaml:1: rack.shelves.spare: must be from 0 to one less than rack.shelves.count"),
        ("rack: {breakers: {a: {class: ul489, rating: 30kW}}}",
         "c.yaml:1: rack.breakers: needs the rack's name; set rack.name or node.rack"),
        ("rack: {name: r, peer: {password: x}}", ("c.yaml:1: rack.peer.password: unknown key; did you mean "
                                                 "'password_file'?")),
        ("rack: {peers: ['n1:1']}", ("c.yaml:1: rack.peers: needs the rack's name; set rack.name or node.rack")),
        ("sampling: {fast: 10ms}", "c.yaml:1: sampling.fast: 10ms is out of range; use 100ms to 60s"),
        ("sampling: {fast: 20s}", "c.yaml:1: sampling.slow: 15s is shorter than sampling.fast, 20s; set both"),
        ("backends: {devices: amd}", ("c.yaml:1: backends.devices: 'amd' is unknown; "
                                     "use one of auto, nvml, synthetic, replay, trace, none")),
        ("rack: {power_budget: 1kW}", ("c.yaml:1: rack.power_budget: needs the rack's name; set rack.name or "
                                      "node.rack")),
        ("backends: {host: maybe}",
         "c.yaml:1: backends.host: must be true or false, found text; write host: true or host: false, without quotes"),
        ("web: {listen: 19400}",
         'c.yaml:1: web.listen: must be a list, found a number; write listen: ["ONE", "TWO"]'),
        ("web: {max_connections: 0}", "c.yaml:1: web.max_connections: 0 is out of range; use 1 to 10000"),
        ("- a", ("c.yaml:1: must be a mapping, found a list; write its keys below it, each on a line of its own "
                 "and indented")),
        ("a: 'b", "c.yaml:1: is not valid YAML: found unexpected end of stream (while scanning a quoted scalar)"),
        ("node: &a {name: x, rack: *a}", ("c.yaml:1: column 26: *a is inside &a itself; write the value "
                                           "out")),
        ("node: {name: 99999999999999999999}", ("c.yaml:1: node.name: '99999999999999999999' is too large for a "
                                               "number; put it in quotes if it is a string")),
        ("web: {}\nweb: {}", "c.yaml:2: web: duplicate key; remove one"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place_and_remedy(text: str, message: str) -> None:
    assert refusal(text) == message


LONG = "x" * 5000
OUT_OF_RANGE = [
    ("sampling: {fast: 1e400}", "sampling.fast: '1e400' is not a duration"),
    ("sampling: {fast: -1s}", "sampling.fast: '-1s' is not a duration"),
    ("sampling: {fast: .nan}", "sampling.fast: nan is not a duration"),
    ("sampling: {fast: 0s}", "sampling.fast: 0ms is out of range; use 100ms to 60s"),
    ("sampling: {slow: 2h}", "sampling.slow: 2h is out of range; use 100ms to 1h"),
    (f"sampling: {{cold: {'9' * 400}d}}", "sampling.cold: infms is out of range; use 100ms to 1d"),
    ("backends: {estimate: {factor: .nan}}", "backends.estimate.factor: nan is out of range; use 1 to 3"),
    ("backends: {estimate: {per_gpu: 1MW}}", "backends.estimate.per_gpu: 1MW is out of range; use 0W to 10kW"),
    ("backends: {expected_gpus: -1}", "backends.expected_gpus: -1 is out of range; use 0 to 1000"),
    ("rack: {name: r, power_factor: .nan}", "rack.power_factor: nan is out of range"),
    ("rack: {name: r, feeds: {a: {amperes: 1e400, volts: 415, phases: 3}}}", "is inf W; give more than 0"),
    ("rack: {name: r, feeds: {a: {amperes: -1, volts: 415, phases: 3}}}", "W; give more than 0 and at most 1e+08 W"),
    (f"rules: {{memory: {'9' * 400}GiB}}", "rules.memory: infB is out of range; use 1MiB to 64GiB"),
    ("rules: {override: {Hot: {for: 9999d}}}", "rules.override.Hot.for: 9999d is out of range; use 0s to 365d"),
    ("rules: {override: {Hot: {thresholds: {5: 1, 5.0: 2}}}}", "rules.override.Hot.thresholds: 5.0: duplicate key"),
    (
        "rules: {override: {Hot: {thresholds: {'5': 1, '5.0': 2}}}}",
        "rules.override.Hot.thresholds: '5.0' is given twice",
    ),
    ("web: {max_connections: 1.5}", "web.max_connections: must be a whole number, found a number with a fraction"),
    ("web: {listen: []}", "web.listen: must name an address, such as ':19400'"),
    ("web: {listen: ['']}", "web.listen: '' is not an address; write host:port, :port or [IPv6 address]:port"),
    ("web: {listen: [':70000']}", "web.listen: ':70000' is not an address"),
    ("web: {listen: [':²']}", "web.listen: ':²' is not an address"),
    ("web: {listen: ['user:secret@host:1']}", "web.listen: 'host:1' is not an address"),
    ("web: {telemetry_path: metrics}", "web.telemetry_path: 'metrics' must begin with '/'"),
    ("web: {telemetry_path: '/a b'}", "web.telemetry_path: '/a b' is not a path; use letters, digits"),
    ("metrics: {profile: none}", "metrics.profile: none, without metrics.include, would expose nothing"),
    ("metrics: {profile: fat}", "metrics.profile: 'fat' is unknown; use one of none, lean, default, full"),
    ("state_dir: ''", "state_dir: is empty; name a directory, or remove the key"),
    ("jobs: {mapping_dir: ''}", "jobs.mapping_dir: is empty; name a directory"),
    ("node: {name: 'a b'}", "node.name: 'a b' is not a valid host name; use letters, digits, '-', '_' and '.'"),
    ('node: {name: "a\\nb"}', "node.name: 'a\\nb' has a line break or another control character; remove it"),
    ("node: {name: 5}", "node.name: must be text, found a number; put it in quotes: "),
    ('node: {cluster: "a\\x1bb"}', "node.cluster: 'a\\x1bb' has a line break or another control character"),
    (f"node: {{cluster: {'x' * 201}}}", "node.cluster: has 201 characters; the limit is 200"),
    (f"node: {{cluster: {LONG}}}", "node.cluster: has 5000 characters; the limit is 4096"),
    ('rack: {name: "r\\u2028s"}', "rack.name: 'r\\u2028s' has a line break or another control character"),
    ('rack: {name: r, feeds: {"a\\nb": 1kW}}', "rack.feeds: 'a\\nb' has a line break or another control character"),
    ('notify: {labels: {a: "x\\ry"}}', "notify.labels.a: 'x\\ry' has a line break or another control character"),
    ("notify: {labels: {a-b: c}}", "notify.labels.a-b: 'a-b' is not a valid label name; use letters, digits and _"),
    ("notify: {labels: {__name__: c}}", "notify.labels.__name__: '__name__' is not a valid label name"),
    ("notify: {labels: {1: c}}", "notify.labels: a key in it is not a string; put it in quotes"),
    ("notify: {labels: {a: 1}}", "notify.labels[...]: must be text, found a number"),
    ('rules: {override: {Hot: {annotations: {a: "x\\x00y"}}}}', "annotations.a: 'x\\x00y' has a line break or another"),
    (f"rules: {{files: [{'a,' * 1001}]}}", "rules.files: has 1001 entries; the limit is 1000"),
    (f"notify: {{labels: {{{''.join(f'l{n}: x, ' for n in range(1001))}}}}}", "notify.labels: has 1001 entries"),
    ("node: {name: !vault abc}", "node.name: the tag '!vault' is not supported; remove it"),
    ("node: {name: a}\n---\nnode: {name: b}\n", "a second document starts here, but only one is read"),
    ("node: {name: &a x, cluster: *b}", "undefined alias *b; define &b before it"),
    ("node:\n\tname: x\n", "indent with spaces, not with tabs"),
    ("- " * 100, "is nested more than 32 levels deep; is it the right file?"),
]


@pytest.mark.parametrize(("text", "message"), OUT_OF_RANGE, ids=[message[:50] for _, message in OUT_OF_RANGE])
def test_a_value_that_cannot_be_meant_is_refused(text: str, message: str) -> None:
    said = refusal(text)
    assert said.startswith("c.yaml:")
    assert message in said
    assert said.isprintable()
    assert len(said) < 1000


@pytest.mark.parametrize(
    "text",
    [
        "web: {listen: ['[fe80::1%eth0]:19400', 'localhost:0', ':65535', '0.0.0.0:1', node-1.example:19400]}",
        "web: {telemetry_path: /gpu/metrics.txt}",
        "node: {name: node-1_a.example, cluster: 'Süd 1', rack: 'r 12/3'}",
        "notify: {labels: {a: 'ä: \u00a0 b', _b: ''}}",
        'rules: {override: {Hot: {annotations: {a: "one\\n\\ttwo"}, expr: "a >\\n  1"}}}',
        "sampling: {fast: 60s, slow: 1h, cold: 1d, window: 1h}",
        "node: &n {cluster: a}\nrack: {<<: {name: r}}\n---\n",
        "node: {cluster: 2024-01-01}",
        "state_dir: null",
    ],
)
def test_an_odd_value_that_can_be_meant_is_accepted(text: str) -> None:
    parse(text, "c.yaml")


def test_a_key_that_is_merged_is_named_with_the_line_where_it_is_written() -> None:
    text = "node: {}\nrules:\n  override:\n    A: &a\n      fro: 1m\n    B: {<<: *a}\n"
    assert refusal(text) == "c.yaml:5: rules.override.A.fro: unknown key; did you mean 'for'?"


@pytest.mark.parametrize(
    ("limit", "watts"),
    [
        ("40.8kW", 40_800.0),
        ("0.5MVA", 475_000.0),
        ("45kVA", 42_750.0),
        ("{amperes: 32, volts: 230, phases: 1}", 32 * 230 * 0.95),
        ("{amperes: 60, volts: 415, phases: 3, derate: 0.8}", 60 * 415 * 3**0.5 * 0.95 * 0.8),
        ("{amperes: 180, volts_dc: 800}", 180 * 800),
        ("{amperes: 180, volts_dc: 800, derate: 0.8}", 180 * 800 * 0.8),
    ],
)
def test_a_limit_may_be_given_in_watts_volt_amperes_or_amperes(limit: str, watts: float) -> None:
    rack = parse(
        f"rack: {{name: r, power_budget: {limit}, node_nameplate: {limit}, feeds: {{a.1: {limit}}}}}", "c"
    ).rack
    assert rack.power_budget == rack.node_nameplate == rack.feeds["a.1"] == pytest.approx(watts)


def test_apparent_power_counts_by_the_power_factor_beside_it_and_power_does_not() -> None:
    rack = parse("rack: {name: r, power_factor: 0.5, power_budget: 40kVA, feeds: {a: 40kW}}", "c").rack
    assert (rack.power_budget, rack.feeds) == (20_000.0, {"a": 40_000.0})


def test_the_remedy_for_a_file_is_given_once_and_the_default_file_need_not_exist(tmp_path: Path) -> None:
    def refused(path: Path, must_exist: bool = False) -> str:
        with pytest.raises(ConfigError) as caught:
            load(path, must_exist=must_exist)
        return str(caught.value)

    assert load(tmp_path / "nowhere.yaml", must_exist=False) == Config()
    (tmp_path / "binary.yaml").write_bytes(b"a: \xff")
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    another = "; give another file with --config.file"
    assert "nowhere.yaml: cannot be read: No such file or directory" in refused(tmp_path / "nowhere.yaml", True)
    assert refused(tmp_path) == f"{tmp_path}: is a directory, not a file; name a file in it"
    assert refused(tmp_path / "binary.yaml").endswith("save it as UTF-8")
    assert (
        refused(tmp_path / "loop.yaml") == f"{tmp_path}/loop.yaml: cannot be read: {os.strerror(errno.ELOOP)}{another}"
    )


@given(st.text(max_size=60))
def test_any_text_is_a_configuration_or_a_clear_refusal(text: str) -> None:
    try:
        parse(text, "c.yaml")
    except ConfigError as error:
        assert str(error).startswith("c.yaml")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4), st.lists, max_leaves=4
)


@given(st.sampled_from(Config.__struct_fields__), st.text("abcdefghijklmnop_", min_size=1), values)
def test_any_value_under_any_section_is_accepted_or_refused(section: str, key: str, value: object) -> None:
    import yaml

    try:
        parse(yaml.safe_dump({section: {key: value}}), "c.yaml")
        parse(yaml.safe_dump({section: value}), "c.yaml")
    except ConfigError as error:
        assert str(error).startswith("c.yaml")


ROOT = Path(__file__).resolve().parents[2]
KEYS = [each for each in entries() if each.field.key is not None]


def uncommented(text: str) -> str:
    """With every key in force: a key's line begins with # and no space behind it."""
    return re.sub(r"^( *)#(?! )|^( *)#(?=  )", r"\1\2", text, flags=re.MULTILINE)


def test_the_document_and_the_default_file_are_current_and_rendered(capsys: pytest.CaptureFixture[str]) -> None:
    document = (ROOT / "docs" / "configuration.md").read_text()
    assert configuration_table.splice(document) == document, "make generate"
    with pytest.raises(ValueError, match="<!-- keys: made by `make generate` -->"):
        configuration_table.splice("nothing")
    assert default_file() == (ROOT / "packaging" / "coldplate.yaml").read_text(), "make generate"
    assert cli.main(["render", "config-file"]) == 0
    assert capsys.readouterr().out == default_file()


def test_the_default_file_changes_nothing_and_every_key_of_it_can_be_put_in_force() -> None:
    assert parse(default_file(), "coldplate.yaml") == Config()
    text = uncommented(default_file()).replace("devices: auto", "devices: synthetic")
    text = re.sub(r"class: ul489", "class: electronic", text)
    found = parse(text, "coldplate.yaml")
    assert found.rack.breakers["NAME"].long_delay == 8.0
    assert found.backends.redfish is not None
    assert found.node.name == "node-1.example"
    assert found.notify.webhook.urls != found.notify.alertmanager.urls
    written = {line.strip().partition(":")[0] for line in text.splitlines()}
    assert {each.field.name for each in entries()} <= written


@for_each("each", KEYS)
def test_a_key_says_what_it_is_for_and_its_default_is_one_that_it_allows(each: KeyEntry) -> None:
    key, default = each.field.key, each.field.default
    assert key is not None
    assert key.what.endswith((".", ","))
    if default not in (None, msgspec.NODEFAULT):
        assert key.problem(default) is None
    if each.field.kind in (int, float) and key.unit is not None:
        assert key.range or key.unit.name == "LIMIT"


def test_a_key_whose_change_needs_a_restart_is_reported_and_the_others_are_not() -> None:
    before = Config()
    after = parse(
        "node: {name: other, rack: r1}\nbackends: {host: false, expected_gpus: 4, estimate: {factor: 2}}\n"
        "web: {listen: [':1']}\nsampling: {fast: 2s}\nstate_dir: /elsewhere\njobs: {sources: []}\n",
        "c.yaml",
    )
    assert keys_for_a_restart(before, after) == [
        "node.name",
        "backends.host",
        "jobs.sources",
        "web.listen",
        "state_dir",
    ]


def test_the_sampler_the_rack_and_a_login_start_from_the_defaults_of_the_schema() -> None:
    assert load_settings(Config()) == Settings()
    assert load_rack(Config(), Path()) == RackOptions()
    assert set(HttpLogin.__struct_fields__) == {*LOGIN, "pinned"}
    assert HttpLogin(**login_of(LoginConfig())) == HttpLogin()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("push: {remote_write: {}}", "c.yaml:1: push: was removed: packaging/push"),
        ("node: {name: a}\noverhead: {cpu: 0.1}", "c.yaml:2: overhead.cpu: is overhead.cpu_cores now"),
    ],
)
def test_a_key_of_before_the_first_release_is_refused_with_what_to_use(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(problem)}"):
        parse(text, "c.yaml")
