"""Regular expressions: those of Prometheus, in linear time, and refused with a reason where they cannot be had."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from alerts.promql import Matcher, PromqlError
from alerts.regex import Expansion, Regex, RegexError, TextTooLongError, linear
from alerts.regex.pattern import predicate, words_of
from tests.promql import oracle
from tests.promql.regexes import Patterns, differences, samples, texts
from tests.servers import need

ROOT = Path(__file__).resolve().parents[2]


def test_generated_expressions_match_and_replace_as_in_prometheus(tmp_path: Path) -> None:
    program = need("prometheus", left_out="nothing compares regular expressions with its own")
    given = texts(1, 150, line_breaks=False)  # in Prometheus 2 a dot is no line break
    with oracle.running(program, tmp_path) as running:
        running.write(samples(given))
        assert list(differences(running, given, Patterns(1), 200)) == []


def is_match(pattern: str, text: str) -> bool:
    return Regex(pattern).predicate()(text)


@pytest.mark.parametrize(
    ("pattern", "taken", "left"),
    [
        ("a.b", "a\nb", "ab"),
        (r"\s", "\t", "\v"),
        (r"[[:^digit:]]", "x", "1"),
        (r"[:alpha:]", "p", "b"),
        (r"a{,}", "a{,}", "a"),
        ("(?i)É", "é", "e"),
        (r"\Qa.b\E+", "a.bbb", "axb"),
        (r"\x{61}\141", "aa", "a"),
        (r"a\z", "a", "b"),
        (r"\B", "", "a"),
        (r"(?U)(a+)b*", "aab", "b"),
        (r"(?P<one>a)(?<two>b)", "ab", "a"),
        (r"\pL+", "né", "n1"),
        (r"a|b|", "", "ab"),
        (r"a\|b", "a|b", "a"),
        (r".+a.*", "xa", "a"),
        (r"a.+", "ab", "a"),
        (".*", "\n", None),
        ("a.b$", "a\nb", "a\nb\n"),
    ],
)
def test_the_dialect_is_gos(pattern: str, taken: str, left: str | None) -> None:
    assert is_match(pattern, taken)
    assert left is None or not is_match(pattern, left)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (r"a\C", r"\C"),
        (r"\x{D800}", "half of a character"),
        (r"[a\]\x{dfff}]", "half of a character"),
        ("(?P<é>a)", "invalid named capture"),
        ("a{99999999999}", "invalid repeat count"),
        ("a{1001}", "invalid repetition size"),
        ("((a{10}){10}){11}", "bad repetition operator|invalid repetition size"),
        ("(?x)a", "(?x"),
        (r"\u0061", r"\u"),
        ("a**", "bad repetition operator"),
        ("(a)(?=b)", "(?="),
        (r"(a)\1", r"\1"),
        ("(", "missing )"),
        ("\ud800.", "not valid Unicode"),
        ("(" * 300 + ")" * 300, "nested more than 250 deep"),
        (r"[\pL\pN]" * 60, "more than 100 classes"),
        (r"\pL{1000}", "too large"),
        ("[ab]" * 2100, "longer than 8192 characters"),
    ],
)
def test_what_go_refuses_or_costs_too_much_is_refused_by_name(pattern: str, words: str) -> None:
    with pytest.raises(RegexError) as caught:
        Regex(pattern)
    assert any(each in str(caught.value) for each in words.split("|"))
    with pytest.raises(PromqlError, match="regular expression"):
        Matcher("x", "=~", pattern)


def test_a_list_of_words_may_be_long_but_requested_groups_are_a_hundred_at_most() -> None:
    assert is_match("|".join(f"GPU-{number:036d}" for number in range(500)), f"GPU-{499:036d}")
    many = "(a)?" * 101
    assert is_match(many, "aa")
    with pytest.raises(RegexError, match="more than 100 groups"):
        Regex(many, groups=True)


NASTY = ("(([0-9a-zA-Z-])+)+!", "(a+)+b", "(a|a)*b", "(a|aa)+$b", "(.*)(.*)(.*)(.*)(.*)b", "(?:a?){60}a{60}b")


@pytest.mark.parametrize("pattern", NASTY)
def test_other_threads_run_while_an_expression_matches(pattern: str) -> None:
    """With an engine that backtracks, neither the other thread nor this one would ever get on."""
    steps = threading.Event()
    done = threading.Thread(target=lambda: (is_match(pattern, "a" * 4000), steps.set()), daemon=True)
    done.start()
    assert steps.wait(60)


def test_halves_of_characters_are_no_error() -> None:
    """The names of files that are not UTF-8 have them; Go sees U+FFFD."""
    odd = "mlx\udcff_\udce9"
    for pattern in ("mlx.*", r"mlx._[^a]", "(?i)MLX\ufffd_.", r"\w+.+"):
        assert is_match(pattern, odd)
    groups = Regex("(mlx)(.)_(.)", groups=True)
    assert groups.expanded(odd, Expansion("$3$2$1", {}), 100) == "\udce9\udcffmlx"
    assert groups.replaced(f"-{odd}-", Expansion("<$2>", {}), 100) == "-<\udcff>-"
    assert Regex(".", dot_all=False, groups=True).found_in("\udcff")


@pytest.mark.parametrize(
    ("pattern", "text", "replacement", "made"),
    [("a", "aaaa", "1234", "1234" * 4), ("a*", "aabab", "long", "longblongblong"), ("x*", "abc", "-", "-a-b-c-")],
)
def test_a_replacement_may_be_as_long_as_its_bound(pattern: str, text: str, replacement: str, made: str) -> None:
    """Also where a match is empty, right after another: nothing is replaced there, and nothing counted."""
    regex, expansion = Regex(pattern, groups=True), Expansion(replacement, {})
    assert regex.replaced(text, expansion, len(made)) == made
    with pytest.raises(TextTooLongError, match="replacement is too long"):
        regex.replaced(text, expansion, len(made) - 1)


@pytest.mark.parametrize("pattern", ["_web_", "a|b", r"\||x", r"a\.b", "", "|b"])
def test_words_are_found_in_a_text_without_an_engine(pattern: str) -> None:
    regex, engine = Regex(pattern, dot_all=False), linear.program(pattern, dot_all=False, groups=True)
    assert words_of(pattern) is not None
    given = [*texts(5, 300), "x_web_y", "a.b", "|", "x", ""]
    assert [regex.found_in(text) for text in given] == [engine.is_within(text) for text in given]


def test_what_needs_no_engine_is_answered_as_by_one() -> None:
    patterns, given = Patterns(0), [*texts(0, 300), "nvml", "jobs_", "jobs_slurm", "a.bc", "|", "xcx", "a", ""]
    alternatives = ["nvml|jobs_.*", ".*a|b|.+c.+|", r"a\.b.*|\||x", "|".join(["a.*"] * 16)]
    assert None not in map(predicate, alternatives)
    without = 0
    for pattern in (*alternatives, *(patterns.one() for _ in range(4000))):
        plain = predicate(pattern)
        if plain is None:
            continue
        without += 1
        engine = linear.program(pattern, dot_all=True, groups=False)
        assert [plain(text) for text in given] == [engine.is_whole(text) for text in given], pattern
    assert without > 200


def test_the_memory_of_compiled_expressions_is_bounded() -> None:
    """They are dropped while their users live on, and come back when they are asked."""
    matchers = [Regex(f"[a-z]{{{number}}}") for number in range(1, 10 * linear.KEPT)]
    assert linear.program.cache_info().currsize <= linear.KEPT
    assert [each.predicate()("a" * 7) for each in matchers].count(True) == 1
    assert linear.program.cache_info().currsize <= linear.KEPT


def test_nothing_is_written_to_standard_error() -> None:
    done = python("from alerts.regex import Regex\ntry:\n Regex('(')\nexcept ValueError: pass")
    assert (done.returncode, done.stderr) == (0, "")


# -- without the library ----------------------------------------------------------------------------------------------

HIDDEN = "import sys\nsys.modules['re2'] = None\n"


def python(script: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)


def test_without_the_library_what_needs_it_is_refused_with_the_remedy() -> None:
    script = f"""{HIDDEN}
from alerts.regex import Regex, RegexError
for pattern in {[*NASTY, "[ab]", "a?", "(a|b)", "x.*y"]!r}:
    try:
        Regex(pattern)
        print("accepted", pattern)
    except RegexError as error:
        print("install the package google-re2" in str(error))
"""
    done = python(script)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.split("\n")[:-1]) == {"True"}


def test_the_pack_is_loaded_without_the_library() -> None:
    """Where it is installed, a rule of the pack that needed it would cost every node 1.5 MiB."""
    files = "', '".join(map(str, sorted((ROOT / "alerts" / "rules").glob("*.yml"))))
    script = (
        f"from pathlib import Path\nfrom alerts import rulefile\nfor each in ['{files}']: rulefile.load(Path(each))"
    )
    done = python(f"import sys\n{script}\nprint('re2' in sys.modules)")
    assert (done.stdout, done.stderr) == ("False\n", "")
