"""Kinds of work of the eight GPUs of a node, healthy and not, as one second of each GPU after another.

A kind is a function of the second and of a random source, and returns what each GPU and the host do. Levels follow an
8-GPU H100 node: 690 of 700 W in steady training, 150 W in a collective that waits, decoding from 27% of the limit.
What these functions leave out is as mild as their author: they show that a rule is silent about this kind of work, and
not how often it is wrong elsewhere.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple

GPUS = 8
STEP = 2.4
"""Seconds of a training step."""


class Level(NamedTuple):
    """What a GPU does in a second: shares, but for the clock in megahertz."""

    busy: float
    power: float
    tensor: float = 0.0
    sm: float = 0.0
    dram: float = 0.0
    clock: float = 1980.0
    used: float = 0.8
    capped: bool = False


class Second(NamedTuple):
    """A second of a node whose GPUs a job holds. `written` and `read` by the host, in bytes."""

    gpus: tuple[Level, ...]
    written: float = 1e6
    read: float = 5e6


Work = Callable[[float, Random], Second]

COMPUTE = Level(1.0, 0.985, 0.56, 0.92, 0.48, 1600.0, capped=True)
EXCHANGE = Level(1.0, 0.80, 0.12, 0.60, 0.33, 1700.0)
SPIN = Level(1.0, 0.22, 0.0005, 0.18, 0.004)
IDLE = Level(0.0, 0.16)
DECODE = Level(1.0, 0.45, 0.04, 0.55, 0.60)
EMPTY = Level(0.0, 0.10, used=0.0)


def blend(one: Level, other: Level, share: float) -> Level:
    """Return a second of which `share` is the one, and the rest the other."""
    rest = 1.0 - share
    busy, power, tensor, sm, dram, clock, used = (share * a + rest * b for a, b in zip(one[:7], other[:7], strict=True))
    return Level(busy, power, tensor, sm, dram, clock, used, one.capped and share > 0.5)


def noisy(level: Level, random: Random) -> Level:
    """Return the level with the noise of sensors."""
    return level._replace(
        power=max(level.power + random.gauss(0.0, 0.006), 0.05),
        tensor=max(level.tensor * random.gauss(1.0, 0.02), 0.0),
        sm=max(level.sm * random.gauss(1.0, 0.02), 0.0),
        clock=level.clock * random.gauss(1.0, 0.003),
    )


def training(t: float, random: Random, compute: Level = COMPUTE) -> Level:
    """Return a second of a training step: an exchange at its end, which falls into some seconds more than others."""
    into = t % STEP
    share = 0.85 if into + 1.0 <= STEP else 0.55
    return noisy(blend(compute, EXCHANGE, share), random)


def in_step(t: float, random: Random, change: Mapping[int, Level] = {}) -> Second:
    """Return a second in which all GPUs train in step, but for some that do something else."""
    return Second(tuple(noisy(change[gpu], random) if gpu in change else training(t, random) for gpu in range(GPUS)))


def waiting_for(random: Random, awaited: Level, written: float = 1e6) -> Second:
    """Return a second in which GPU 0 does something else, and all others spin."""
    return Second((noisy(awaited, random), *(noisy(SPIN, random) for _ in range(GPUS - 1))), written)


# Healthy.


def beside(change: Mapping[int, Level]) -> Work:
    """Train in step, but for some GPUs that do something else all the time."""
    return lambda t, random: in_step(t, random, change)


def checkpoint(seconds: float) -> Work:
    """Save every twenty minutes for so long: rank 0 writes, and the others wait."""

    def work(t: float, random: Random) -> Second:
        into = t % 1200.0 - 600.0
        if not 0.0 <= into < seconds:
            return in_step(t, random)
        return waiting_for(random, IDLE, written=2.5e9)

    return work


def evaluation(t: float, random: Random) -> Second:
    """Evaluate for ten minutes of each hour on rank 0, while the others wait."""
    return waiting_for(random, COMPUTE) if 900.0 <= t % 3600.0 < 1500.0 else in_step(t, random)


def staggered_loading(t: float, random: Random) -> Second:
    """Load the model one GPU after another, each for 45 s, and wait in a barrier; then train."""

    def of(gpu: int) -> Level:
        begun = 45.0 * gpu
        if t < begun:
            return EMPTY._replace(used=0.02)
        if t < begun + 45.0:
            return Level(0.05, 0.18, used=0.02 + 0.78 * (t - begun) / 45.0)
        return SPIN

    if t >= 45.0 * GPUS:
        return in_step(t, random)
    return Second(tuple(noisy(of(gpu), random) for gpu in range(GPUS)), read=3e9)


def replicas(t: float, random: Random) -> Second:
    """Serve with eight replicas of their own load, of which three get nothing from the twentieth minute on."""

    def of(gpu: int) -> Level:
        load = 0.3 + 0.6 * random.random()
        return IDLE if gpu < 3 and t % 3600.0 >= 1200.0 else blend(DECODE, IDLE, load)

    return Second(tuple(noisy(of(gpu), random) for gpu in range(GPUS)))


def prefill_and_decode(t: float, random: Random) -> Second:
    """Serve with four GPUs that prefill in bursts, and four that decode all the time at low power."""
    low = Level(1.0, 0.29, 0.02, 0.35, 0.45)
    return Second(
        tuple(noisy(blend(COMPUTE, IDLE, random.random()) if gpu < 4 else low, random) for gpu in range(GPUS))
    )


def reinforcement(t: float, random: Random) -> Second:
    """Generate with five GPUs while three wait, for three minutes, and train with all for one."""
    if t % 240.0 >= 180.0:
        return in_step(t, random)
    return Second(tuple(noisy(DECODE if gpu < 5 else SPIN, random) for gpu in range(GPUS)))


def sweep(t: float, random: Random) -> Second:
    """Train eight independent models; each ends after 75 minutes, and its GPU is empty for five."""

    def of(gpu: int) -> Level:
        into = (t + 600.0 * gpu) % 4800.0
        return IDLE._replace(used=0.01) if into >= 4500.0 else training(t * (1.0 + 0.07 * gpu), random)

    return Second(tuple(noisy(of(gpu), random) for gpu in range(GPUS)))


def reward_model(t: float, random: Random) -> Second:
    """Generate with seven GPUs; the eighth judges in bursts of twenty seconds every two minutes."""
    judges = COMPUTE if t % 120.0 < 20.0 else IDLE
    return Second(tuple(noisy(DECODE if gpu < 7 else judges, random) for gpu in range(GPUS)))


def going_quiet(level: Level, quiet: Level, gpus: int = 3) -> Work:
    """Do the same on all GPUs, with the noise of sensors alone; the first ones stop for twenty minutes of each hour."""

    def work(t: float, random: Random) -> Second:
        stops = t % 3600.0 >= 1200.0 and t % 3600.0 < 2400.0
        return Second(tuple(noisy(quiet if gpu < gpus and stops else level, random) for gpu in range(GPUS)))

    return work


def long_generation(t: float, random: Random) -> Second:
    """Train in step for twenty minutes, then generate with five GPUs while three wait, for twenty."""
    if t % 2400.0 < 1200.0:
        return in_step(t, random)
    return Second(tuple(noisy(DECODE if gpu < 5 else SPIN, random) for gpu in range(GPUS)))


def clock_locked(t: float, random: Random) -> Second:
    """Train at a locked clock, at which no GPU reaches its power limit."""
    locked = COMPUTE._replace(power=0.7, clock=1200.0, capped=False)
    return Second(tuple(training(t, random, locked) for _ in range(GPUS)))


def power_capped(t: float, random: Random) -> Second:
    """Train at the power cap, at which chips that leak more run at up to 9% lower clocks."""
    return Second(
        tuple(
            training(t, random, COMPUTE._replace(clock=1600.0 * (1.0 - 0.013 * gpu), tensor=0.56 / (1.0 - 0.013 * gpu)))
            for gpu in range(GPUS)
        )
    )


def uneven_stages(t: float, random: Random) -> Second:
    """Train with stages that differ by 6% and 7% in work; those with less wait for the others."""
    shares = (1.0, 0.93, 0.94, 1.0, 0.93, 0.94, 0.94, 1.0)
    return Second(tuple(blend(training(t, random), noisy(SPIN, random), share) for share in shares))


HEALTHY: Mapping[str, Work] = {
    "steady training": in_step,
    "checkpoints of 150 s": checkpoint(150.0),
    "checkpoints of 240 s": checkpoint(240.0),
    "evaluation on rank 0": evaluation,
    "staggered loading": staggered_loading,
    "replicas, some quiet": replicas,
    "prefill and decode": prefill_and_decode,
    "generating and waiting (RL)": reinforcement,
    "a sweep": sweep,
    "a reward model": reward_model,
    "a smaller model in the job": beside({7: blend(COMPUTE, IDLE, 0.33)}),  # it works a third of the time
    "locked clocks": clock_locked,
    "uneven chips at the power cap": power_capped,
    "stages that differ by 7%": uneven_stages,
    "steady replicas, three go quiet": going_quiet(DECODE, IDLE),
    "a steady sweep, three trials end": going_quiet(COMPUTE, IDLE),
    "steady generating, three wait": going_quiet(DECODE, SPIN),
    "training, then generating (RL)": long_generation,
    "an agent that starts late": beside({5: IDLE}),  # the GPU has long been idle by then
}
INFORMED = {
    "evaluation on rank 0",
    "steady replicas, three go quiet",
    "a steady sweep, three trials end",
    "steady generating, three wait",
    "training, then generating (RL)",
}
"""Kinds of healthy work about which an alert of severity info is right."""


# Not healthy: from second 900 on, or from the first.


def stall(share: float, begins: float = 900.0) -> Work:
    """GPU 0 stands for a share of each two minutes, and the others wait for it."""

    def work(t: float, random: Random) -> Second:
        if t < begins or (t - begins) % 120.0 >= share * 120.0:
            return in_step(t, random)
        return waiting_for(random, IDLE._replace(busy=0.01))

    return work


def slow(factor: float) -> Work:
    """GPU 6 runs at a fraction of its clock, and the others wait for it in each step."""

    def work(t: float, random: Random) -> Second:
        if t < 900.0:
            return in_step(t, random)
        slowed = COMPUTE._replace(power=0.985 * factor, clock=1600.0 * factor, capped=False)
        gpus = [blend(training(t, random), noisy(SPIN, random), factor) for _ in range(GPUS)]
        gpus[6] = training(t, random, slowed)
        return Second(tuple(gpus))

    return work


def uneven(t: float, random: Random) -> Second:
    """GPU 5 gets a twentieth of the work, and the others compute as before."""
    return in_step(t, random, {5: blend(COMPUTE, IDLE, 0.05)} if t >= 900.0 else {})


def endless(awaited: Level) -> Work:
    """GPU 0 does this without end, and all others wait for it."""
    return lambda t, random: waiting_for(random, awaited) if t >= 900.0 else in_step(t, random)


def saves_always(t: float, random: Random) -> Second:
    """Save for four of each six minutes."""
    if t >= 900.0 and t % 360.0 < 240.0:
        return waiting_for(random, IDLE, written=2.5e9)
    return in_step(t, random)


class Fault(NamedTuple):
    """What must be said about a kind of work that is not healthy, and within how many seconds."""

    work: Work
    begins: float
    alert: str
    gpu: str
    within: float
    warns_within: float | None = None

    @property
    def seconds(self) -> float:
        """How long it is played."""
        return self.begins + max(self.within, self.warns_within or 0.0) + 60.0


FAULTY: Mapping[str, Fault] = {
    "a stall, 97% of the time": Fault(stall(0.975), 900.0, "GpuImbalance", "0", 120.0, 320.0),
    "a stall, 77% of the time": Fault(stall(0.77), 900.0, "GpuImbalance", "0", 120.0, 320.0),
    "a stall, 69% of the time": Fault(stall(0.69), 900.0, "GpuImbalance", "0", 120.0, 320.0),
    "a stall, 57% of the time": Fault(stall(0.57), 900.0, "GpuImbalance", "0", 120.0, 320.0),
    "a stall from the first step": Fault(stall(0.69, begins=0.0), 0.0, "GpuImbalance", "0", 150.0, 320.0),
    "a GPU at 60% of its clock": Fault(slow(0.6), 900.0, "GpuStraggler", "6", 300.0, 300.0),
    "a GPU at 80% of its clock": Fault(slow(0.8), 900.0, "GpuStraggler", "6", 300.0, 300.0),
    "a GPU at 90% of its clock": Fault(slow(0.9), 900.0, "GpuStraggler", "6", 300.0, 300.0),
    "a GPU with 5% of the work": Fault(uneven, 900.0, "GpuImbalance", "5", 300.0, 300.0),
    "a collective that hangs": Fault(endless(SPIN), 900.0, "GpuJobSyncStall", "", 600.0),
    "a rank in an endless loop": Fault(endless(COMPUTE), 900.0, "GpuStraggler", "0", 300.0, 1500.0),
    "saving without end": Fault(saves_always, 900.0, "GpuJobSaving", "", 2400.0),
}
