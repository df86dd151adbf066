"""Who gets in with which password, what a guess costs, and what can be learned from it."""

import base64
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus

import bcrypt
import pytest

from agent.lib.threads import Threads
from exporters.deferred import Answer, Deferred
from exporters.gate import PASS
from exporters.protection import passwords
from exporters.protection.passwords import CROWDED, DENIED, MOST_ADDRESSES, MOST_OF_ONE, PasswordChecks
from tests.protection.conftest import HASHES


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def settled(answer: Answer | None) -> object:
    if not isinstance(answer, Deferred):
        return answer
    done = threading.Event()
    answer.listen(done.set)
    assert done.wait(10)
    return answer.response


@pytest.fixture
def resting() -> PasswordChecks:
    """Nothing is checked yet."""
    return PasswordChecks(lambda: 0.0)


@pytest.fixture
def checks(resting: PasswordChecks) -> Iterator[PasswordChecks]:
    resting.start(Threads())
    yield resting
    resting.stop(10)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    real: Callable[[bytes, bytes], bool] = bcrypt.checkpw
    hashes: list[bytes] = []

    def checkpw(password: bytes, hashed: bytes) -> bool:
        hashes.append(hashed)
        return real(password, hashed)

    monkeypatch.setattr(bcrypt, "checkpw", checkpw)
    return hashes


@pytest.mark.parametrize(
    "header", ["", "Basic", "Basic !!", "Bearer x", "Basic " + base64.b64encode(b"nocolon").decode()]
)
def test_without_a_login_there_is_no_check(resting: PasswordChecks, header: str) -> None:
    assert resting.check(HASHES, header, "a") is DENIED
    assert DENIED.status is HTTPStatus.UNAUTHORIZED
    assert dict(DENIED.headers)["WWW-Authenticate"].startswith("Basic ")


def test_the_right_password_gets_in_and_then_at_once(checks: PasswordChecks, computed: list[bytes]) -> None:
    assert settled(checks.check(HASHES, basic("scraper", "right"), "a")) is PASS
    assert checks.check(HASHES, basic("scraper", "right"), "b") is None
    assert checks.check(HASHES, basic("scraper", "right").replace("Basic", "bAsIc"), "b") is None
    assert len(computed) == 1


@pytest.mark.parametrize(
    "login", [("scraper", "wrong"), ("nobody", "right"), ("", ""), ("scraper", "right\0"), ("é", "ü")]
)
def test_anything_else_is_denied_after_a_hash_as_costly(
    checks: PasswordChecks, computed: list[bytes], login: tuple[str, str]
) -> None:
    for _ in range(2):
        assert settled(checks.check(HASHES, basic(*login), "a")) is DENIED
    costs = {each.split(b"$")[2] for each in computed}
    assert (len(computed), costs) == (2, {b"04"})


def test_an_unknown_user_looks_like_one_of_the_known(resting: PasswordChecks) -> None:
    """The cost of hashes may differ: then it does for users who do not exist, too, and for each it stays the same."""
    users = {"a": HASHES["scraper"], "b": HASHES["scraper"].replace("$04$", "$05$")}
    decoys = {name: resting._dummy_hash(users, name) for name in map(str, range(64))}
    assert {each[:7] for each in decoys.values()} == {"$2b$04$", "$2b$05$"}
    assert all(resting._dummy_hash(users, name) == decoy for name, decoy in decoys.items())
    assert bcrypt.checkpw(b"x", decoys["0"].encode()) is False


def test_a_password_is_right_for_its_user_and_hash_only(checks: PasswordChecks) -> None:
    users = {**HASHES, "other": bcrypt.hashpw(b"else", bcrypt.gensalt(4)).decode()}
    assert settled(checks.check(users, basic("scraper", "right"), "a")) is PASS
    assert settled(checks.check(users, basic("other", "right"), "a")) is DENIED
    changed = {"scraper": users["other"]}
    assert settled(checks.check(changed, basic("scraper", "right"), "a")) is DENIED
    long = {"long": bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4)).decode()}  # as far as bcrypt looks
    assert settled(checks.check(long, basic("long", "x" * 90), "a")) is PASS
    assert settled(checks.check(long, basic("long", "x" * 71), "a")) is DENIED


def test_guesses_wait_in_few_places_and_leave_some_to_others(resting: PasswordChecks) -> None:
    answers = [resting.check(HASHES, basic("scraper", str(number)), "guesser") for number in range(100)]
    assert sum(isinstance(each, Deferred) for each in answers) == MOST_OF_ONE
    assert answers[-1] is CROWDED
    assert isinstance(resting.check(HASHES, basic("scraper", "right"), "scraper"), Deferred)
    others = [resting.check(HASHES, basic("scraper", "x"), str(number)) for number in range(2 * MOST_ADDRESSES)]
    assert sum(isinstance(each, Deferred) for each in others) == MOST_ADDRESSES - 2


def test_addresses_take_turns(resting: PasswordChecks) -> None:
    order: list[str] = []
    guesses = [resting.check(HASHES, basic("scraper", str(number)), "guesser") for number in range(MOST_OF_ONE)]
    mine = resting.check(HASHES, basic("scraper", "right"), "scraper")
    for name, each in [*(("guess", guess) for guess in guesses), ("mine", mine)]:
        assert isinstance(each, Deferred)
        each.listen(lambda name=name: order.append(name))
    resting.start(Threads())
    while len(order) < MOST_OF_ONE + 1:
        threading.Event().wait(0.001)
    assert order[:2] == ["guess", "mine"]
    assert mine.response is PASS
    resting.stop(10)


def test_who_has_gone_is_not_checked_any_more(resting: PasswordChecks, computed: list[bytes]) -> None:
    gone = resting.check(HASHES, basic("scraper", "wrong"), "a")
    assert isinstance(gone, Deferred)
    gone.abandoned = True
    last = resting.check(HASHES, basic("scraper", "right"), "a")
    resting.start(Threads())
    assert settled(last) is PASS
    assert len(computed) == 1
    resting.stop(10)


def test_the_thread_rests_after_each_wrong_password_and_after_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is counted by the calls of the clock: a check takes one second of it."""
    ticks = iter(range(10**6))
    checks = PasswordChecks(lambda: float(next(ticks)))
    rests: list[float] = []
    monkeypatch.setattr(checks._stopping, "wait", rests.append)
    checks.start(Threads())
    assert settled(checks.check(HASHES, basic("scraper", "right"), "a")) is PASS
    assert settled(checks.check(HASHES, basic("scraper", "wrong"), "a")) is DENIED
    checks.stop(10)
    assert rests == [passwords.MOST_REST_SECONDS]


def test_few_right_logins_are_remembered(checks: PasswordChecks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "MOST_KNOWN", 1)
    assert settled(checks.check(HASHES, basic("scraper", "right"), "a")) is PASS
    users = {"other": HASHES["scraper"]}
    assert settled(checks.check(users, basic("other", "right"), "a")) is PASS
    assert isinstance(checks.check(HASHES, basic("scraper", "right"), "a"), Deferred)
