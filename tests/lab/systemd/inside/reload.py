"""The configuration is read again on `systemctl reload`, and a bad one changes nothing."""

from __future__ import annotations

from inside.tools import CheckError, active, check, configure, journal, main_pid, sh, total, until

GOOD = "coldplate_config_last_reload_successful"


@check("reload")
def reloads() -> str:
    pid = main_pid()
    configure("sampling: {slow: 5s, cold: 30s}\n")
    sh("systemctl", "reload", "coldplate.service")
    until("30 s", lambda: total("coldplate_sampling_interval_seconds", sampling_lane="cold") == 30.0)
    configure("sampling: {slow: 5s, colt: 20s}\n")
    sh("systemctl", "reload", "coldplate.service")
    until("the refusal", lambda: total(GOOD) == 0.0)
    told = [line for line in journal().splitlines() if "not reloaded" in line]
    if total("coldplate_sampling_interval_seconds", sampling_lane="cold") != 30.0 or not told:
        raise CheckError(f"a bad configuration took effect, or was refused without a word: {told}")
    configure("sampling: {slow: 5s}\n")
    sh("systemctl", "reload", "coldplate.service")
    until("well again", lambda: total(GOOD) == 1.0)
    if (main_pid(), active()) != (pid, "active"):
        raise CheckError(f"process {pid} became {main_pid()}, {active()}")
    return f"a good file takes effect, a bad one is refused ({told[0].partition('msg=')[2][:90]}...), same process"


@check("bad configuration at the start")
def waits_for_a_better_one() -> str:
    configure("sampling: {colt: 20s}\n")
    sh("systemctl", "restart", "--no-block", "coldplate.service")
    until("a second attempt", lambda: journal().count("colt") >= 3)
    state = active()
    configure("sampling: {slow: 5s}\n")
    took = until("it runs", lambda: active() == "active", 30)
    return f"tried again and again ({state}); {took:.1f} s after the file was mended it runs, without anybody's help"
