"""Queries whose answers a real Prometheus gives as well: every function, operator and modifier, and their errors."""

from __future__ import annotations


def _words(text: str) -> list[str]:
    return text.split()


_VECTORS = ("util", 'odd{kind!="mixed"}', "sum by (node) (util)", 'ends{how=~"m.*|r.*"}')
_RANGES = ("energy_total[5m]", "odd[2m]", "ends[4m]", "energy_total[90s] offset 2m", "sum by (node) (util)[3m:20s]")

_RANGE_FUNCTIONS = _words(
    "rate irate increase delta idelta deriv changes resets avg_over_time min_over_time max_over_time sum_over_time "
    "count_over_time stddev_over_time stdvar_over_time last_over_time present_over_time absent_over_time"
)
_VALUE_FUNCTIONS = _words("abs ceil floor sgn sqrt exp ln log2 log10 round sort sort_desc timestamp absent")
_DATE_FUNCTIONS = _words("minute hour day_of_month day_of_week day_of_year days_in_month month year")
_AGGREGATIONS = _words("sum avg min max count group stddev stdvar")

WRITTEN = """
1 + 2 * 3 ^ 2 ^ 0.5
-1 ^ 2
2 / -2 ^ ---1 * 3 + 2
- - - 1
-10 ^ 3 * - sum(util) ^ -1
1 - 2 - 3
2 ^ 3 ^ 2
7 % 4 * 2
1 + 1 == bool 2 * 1
5 % 3
-5 % 3
5 % 0
1 / 0
-1 / 0
0 / 0
0 ^ -1
-8 ^ 0.5
2 ^ 5000
1 > bool 2
NaN == bool NaN
Inf - Inf
1 atan2 -1
time()
vector(1)
scalar(util)
scalar(sum(util))
vector(time()) - 5
hour()
minute()
day_of_year()
month(vector(1709251200))
days_in_month(vector(1709251200))
day_of_week(vector(-1.5))
year(vector(951782400))
day_of_year(vector(951782400))
"text"
util offset 5m
util offset -30s
util offset 100d
util{gpu="1"}
util{gpu!="1"}
util{gpu=~"[1-3]"}
util{gpu!~"[1-3]|5"}
util{gpu=~"1|2", node="n0"}
util{absent=""}
util{absent!=""}
util{gpu=""}
util{gpu=~".*"}
util{gpu=~""}
util{absent=~".*"}
util{absent!~".+"}
{__name__=~"util|temp", gpu="3"}
{__name__="limit"}
{gpu="2"}
{node=~"(?i)N0", __name__="limit"}
util{node=~"n[[:digit:]]"}
util{node=~"n\\\\d"}
util @ end()
rate(energy_total[2m] @ start())
sum_over_time(util[1m] @ end() offset 1m)
max_over_time((util @ end())[2m:30s])
ends
ends offset 5m
ends offset 9m
count_over_time(ends[20m])
last_over_time(ends[10m])
absent_over_time(ends[1m])
absent_over_time(nothing{x="1"}[1m])
present_over_time(nothing[1m])
absent(nothing)
absent(nothing{x="1", y=~"2", z!="3"})
absent(nothing{x="1", x="2"})
absent(nothing{x=""})
absent(sum(nothing))
absent(sum(nothing{x="1"}))
absent((nothing{x="1"}))
timestamp(util)
timestamp(util offset 1m)
timestamp(util + 0)
timestamp(timestamp(util))
timestamp((ends))
timestamp(sum(util))
util + util
util - temp
temp / on(gpu, node) util
temp * on(gpu) util
temp * ignoring(node) util
util - on(node) limit
util - on(node) group_left limit
util * on(node) group_left() limit
limit * on(node) group_right util
util > on(node) group_left limit
limit < on(node) group_right util
limit < bool on(node) group_right util
util > bool on(node) group_left limit
util * on(gpu, node) group_left(job_id) job_info
job_info * on(gpu, node) group_right(job_id) util
util + on(node) group_left(gpu) limit
limit + on(node) util
limit * on(node) group_right(gpu) util
util + on() limit
util + on() group_left limit
sum(util) + on() sum(temp)
sum(util) + on(x) group_left(y) sum(temp)
util == util
util == bool util
util != util
odd == odd
odd != odd
odd != bool odd
odd > 0
odd >= 0
odd < 0
odd <= -2
odd > bool 0
0 < odd
0 < bool odd
odd * 0
odd / 0
odd % 2
odd ^ 2
2 ^ odd
2 % odd
sum by (kind) (odd) atan2 sum by (kind) (odd)
sum by (kind) (odd) atan2 0
-odd
- util
+util
-(util > 0.5)
util > 0.5
0.5 < util
util > 0.2 < 0.8
util > bool 0.5
util == 1
10 - util
util and temp
util and on(node) limit
util and on(node) (limit > 0.3)
util and ignoring(gpu) limit
util unless on(node) (limit > 0.3)
util unless temp
util unless nothing
util and nothing
nothing and util
nothing * on(node) util
util * on(node) nothing
util * on(node) group_right() nothing
nothing or util
util or temp
util or on(node) temp
util or on() vector(0)
nothing or on() vector(0)
count(nothing) or vector(0)
limit or on(node) util
util{gpu="1"} or util{gpu="2"} or util
(util > 0.9) or (util < 0.1)
(util > 0.9) or (temp > 45)
sum(util)
sum by (node) (util)
sum by (node, missing) (util)
sum by (missing) (util)
sum by () (util)
sum without (gpu) (util)
sum without () (util)
sum without (gpu, node) (util)
sum by (__name__) ({gpu="1"})
max without (gpu) ({gpu=~"1|2", __name__=~"util|temp"})
sum(odd)
avg(odd)
min(odd)
max(odd)
min(odd{kind=~"nan|mixed"})
max(odd{kind=~"nan|mixed"})
max(odd{kind="nan"})
stddev(odd)
count(odd)
avg(odd{kind="inf"})
avg(odd{kind=~"inf|zero"})
count(nothing)
sum(nothing)
topk(3, util)
bottomk(3, util)
topk(1, util) by (node)
topk by (node) (2, util)
bottomk without (gpu) (1, util)
topk(0, util)
topk(-1, util)
topk(100, util)
topk(2.9, util)
topk(2, odd{kind!="mixed"})
bottomk(3, odd{kind!~"mixed|nan"})
topk(scalar(count(limit)), util)
topk(1e30, util)
quantile(0.5, util)
quantile by (node) (0.25, util)
quantile(0, util)
quantile(1, util)
quantile(-1, util)
quantile(2, util)
quantile(NaN, util)
quantile(0.5, odd)
quantile(0.9, nothing)
count_values("v", limit)
count_values("v", temp)
count_values("v", odd)
count_values("node", temp)
count_values("node", temp) by (node)
count_values without (gpu) ("v", temp)
count_values by (node) ("v", temp)
count_values("v", util * 1e30)
count_values("v", util * 1e23)
count_values("v", -util / 1e7)
count_values("v", util / 1e9)
group by (node) (util)
rate(energy_total{gpu="3"}[5m])
rate(energy_total[20s])
rate(energy_total[14s])
irate(energy_total[14s])
idelta(energy_total[40s])
increase(energy_total[20m])
increase(energy_total[30m])
rate(energy_total[3m:10s])
rate(energy_total[3m:10s] offset 1m)
increase(energy_total[5m:1m])
deriv(energy_total[5m])
deriv(limit[5m])
deriv(odd[5m])
predict_linear(energy_total[5m], 3600)
predict_linear(energy_total[5m] offset 3m, 600)
predict_linear(temp[10m], -60)
predict_linear(limit[5m], 60)
predict_linear(temp[5m:20s], scalar(limit{node="n0"}))
changes(temp[5m])
changes(odd[5m])
changes(limit[5m])
resets(energy_total[15m])
resets(temp[15m])
quantile_over_time(0.9, util[5m])
quantile_over_time(0.5, odd[5m])
quantile_over_time(2, util[5m])
quantile_over_time(-1, util[5m])
quantile_over_time(scalar(limit{node="n0"}), util[5m])
max_over_time(odd{kind="mixed"}[5m])
min_over_time(odd{kind="mixed"}[5m])
avg_over_time(odd{kind="mixed"}[5m])
sum_over_time(odd{kind="inf"}[5m])
avg_over_time(odd{kind="inf"}[5m])
avg_over_time(util[5m]) * on(gpu, node) group_left(job_id) job_info
last_over_time(util[5m]) + 0
max_over_time(rate(energy_total[1m])[5m:20s])
avg_over_time(sum(util)[4m:])
sum_over_time(vector(1)[5m:])
count_over_time(ends[15m:30s])
min_over_time(max_over_time(util[1m])[3m:25s])
sum_over_time(sum_over_time(util[70s:20s])[110s:40s])
sum_over_time(vector(time())[3m:50s])
max_over_time((util > 0.5)[5m:20s])
last_over_time({__name__=~"util|temp"}[1m])
max_over_time({__name__=~"util|temp"}[1m])
clamp(temp, 42, 45)
clamp(temp, 45, 42)
clamp(temp, NaN, 42)
clamp(odd, -3, 3)
clamp_min(odd, 0)
clamp_max(odd, 0)
clamp_min(odd, NaN)
clamp_max(temp, scalar(sum(limit)))
round(util, 0.1)
round(temp, 5)
round(odd, 0.3)
round(util, 0)
round(-temp / 2)
round(util, NaN)
ceil(-util)
floor(-util)
sort(temp)
sort_desc(temp)
label_replace(limit, "x", "$1-$2", "node", "(n)(\\\\d)")
label_replace(limit, "x", "${1}y", "node", "(.*)")
label_replace(limit, "x", "$1y", "node", "(.*)")
label_replace(limit, "x", "$$1", "node", "(.*)")
label_replace(limit, "x", "$name", "node", "(?P<name>.*)")
label_replace(limit, "x", "$9", "node", "(.*)")
label_replace(limit, "x", "fixed", "missing", "")
label_replace(limit, "x", "fixed", "node", "n")
label_replace(limit, "node", "", "node", ".*")
label_replace(limit{node="n0"}, "node", "", "node", ".*")
label_replace(limit, "__name__", "renamed", "node", "n1")
label_replace(util, "gpu", "same", "gpu", ".*")
label_replace(limit, "x", "$1", "node", "n(x)?.*")
label_join(util, "where", "/", "node", "gpu")
label_join(util, "where", "/", "node", "missing", "gpu")
label_join(limit, "where", "/")
label_join(util, "gpu", "", "node")
histogram_quantile(0.9, latency_bucket)
histogram_quantile(0.5, rate(latency_bucket[5m]))
histogram_quantile(0.99, sum by (le) (rate(latency_bucket[5m])))
histogram_quantile(0, latency_bucket)
histogram_quantile(1, latency_bucket)
histogram_quantile(-1, latency_bucket)
histogram_quantile(2, latency_bucket)
histogram_quantile(NaN, latency_bucket)
histogram_quantile(0.1, latency_bucket)
histogram_quantile(0.5, latency_bucket{le!="+Inf"})
histogram_quantile(0.5, latency_bucket{le="+Inf"})
histogram_quantile(0.5, util)
histogram_quantile(0.3, sum by (gpu, le) (latency_bucket{le!="0.5"}) or sum by (gpu, le) (latency_bucket{le="0.5"}) / 4)
histogram_quantile(0.5, latency_bucket * 0)
histogram_quantile(0.5, -latency_bucket)
sum by (node) (util) / count by (node) (util)
max by (node) (util * on(gpu, node) job_info) - min by (node) (util * on(gpu, node) job_info) > 0.5
max by (job_id) (util * on (gpu, node) group_left(job_id) job_info)
job_info unless on (gpu) (count by (gpu) (max by (gpu, job_id) (job_info)) > 1)
abs(util - on(node) group_left quantile by(node)(0.5, util))
quantile by (node) (0.5, abs(util - on(node) group_left quantile by (node) (0.5, util)))
(energy_total unless energy_total offset 10m) > 0
(energy_total unless energy_total offset 100d) > 0
count(util) < 8
count(util) <= 8 and sum(util) > 0
util > 1.5 * scalar(avg(util))
sum(rate(energy_total[5m])) by (node) > 0 unless on (node) limit == 0.25
{gpu="1"} * 2
{gpu="1"} > 0.5
-{gpu="1", __name__=~"util|temp"}
abs({gpu="1", __name__=~"util|temp"})
rate({gpu="1", __name__=~"util|temp"}[5m])
{__name__=~"util|temp"} + on(gpu) util
util + ignoring(gpu) group_left limit
vector(1) == vector(1)
vector(1) > bool vector(2)
vector(scalar(util))
""".strip().splitlines()

QUERIES = [line.replace("\\\\\\\\", "\\\\") for line in WRITTEN]
QUERIES += [f"{name}({each})" for name in _RANGE_FUNCTIONS for each in _RANGES]
QUERIES += [f"{name}({each})" for name in _VALUE_FUNCTIONS for each in _VECTORS]
# Of NaN and the infinities, the date is whatever the processor makes of them.
QUERIES += [f"{name}({each} * 1e8)" for name in _DATE_FUNCTIONS for each in _VECTORS[2:]]
QUERIES += [f"{name}{clause} ({each})" for name in _AGGREGATIONS for clause in ("", " by (node)") for each in _VECTORS]
