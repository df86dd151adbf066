"""The style of the report's page: light and dark as the reader's system, and on paper."""

from __future__ import annotations

STYLE = """
:root{color-scheme:light dark;--ink:#16202a;--soft:#55626f;--line:#dce2e8;--paper:#fff;--wash:#f4f6f8;--bad:#b3261e;
--warn:#8a4b00;--c0:#0b5cad;--c1:#c2410c;--c2:#15803d;--c3:#7e22ce;--c4:#0e7490;--c5:#be185d;--c6:#a16207;--c7:#4b5563}
@media(prefers-color-scheme:dark){:root{--ink:#e6ebf0;--soft:#9aa8b5;--line:#2b3743;--paper:#12181e;--wash:#1a222b;
--bad:#ff8a7c;--warn:#f0b04a;--c0:#7bbcff;--c1:#fb923c;--c2:#4ade80;--c3:#c4a0ff;--c4:#5ed3e8;--c5:#f78fbf;
--c6:#e5c454;--c7:#a8b3bf}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.45 system-ui,sans-serif}
main{max-width:78rem;margin:0 auto;padding:1.25rem}
h1{font-size:1.4rem;margin:0;overflow-wrap:anywhere}
h2{font-size:1.05rem;margin:1.75rem 0 .5rem}
h3{font-size:.9rem;margin:0 0 .2rem;font-weight:600}
p{margin:.15rem 0;overflow-wrap:anywhere}
small,.soft{color:var(--soft);font-size:.87em}
.remarks{list-style:none;padding:0;margin:0}
.remarks li{background:var(--wash);border:1px solid var(--line);border-left:.4rem solid var(--soft);border-radius:.3rem;
padding:.55rem .8rem;margin:.45rem 0;overflow-wrap:anywhere}
.remarks .fault{border-left-color:var(--bad)}
.remarks .slow{border-left-color:var(--warn)}
.fault b{color:var(--bad)}
.slow b{color:var(--warn)}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(30rem,100%),1fr));gap:.9rem}
.plots section{border:1px solid var(--line);border-radius:.4rem;padding:.6rem .7rem}
svg{display:block;width:100%;height:auto;overflow:visible}
svg text{fill:var(--soft);font:20px system-ui,sans-serif}
.grid{stroke:var(--line);fill:none}
.band{fill:var(--soft);fill-opacity:.16}
.line{fill:none;stroke-width:1.7;stroke-linejoin:round;stroke-linecap:round}
.line:hover{stroke-width:4}
.mark{fill:var(--bad);fill-opacity:.1}
.l0{stroke:var(--c0)}.l1{stroke:var(--c1)}.l2{stroke:var(--c2)}.l3{stroke:var(--c3)}
.l4{stroke:var(--c4)}.l5{stroke:var(--c5)}.l6{stroke:var(--c6)}.l7{stroke:var(--c7)}
.quiet{stroke:var(--soft);stroke-opacity:.45;stroke-width:1.1}
.key{display:flex;flex-wrap:wrap;gap:.2rem 1rem;margin:.2rem 0 .7rem}
.key span{white-space:nowrap}
.key svg{display:inline-block;width:1.6rem;height:.7rem;margin-right:.35rem;vertical-align:baseline}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:.25rem .5rem;white-space:nowrap}
th{color:var(--soft);font-weight:500;font-size:.82rem;vertical-align:bottom}
th:first-child,td:first-child{text-align:left}
tbody tr{border-top:1px solid var(--line)}
.alerts td{text-align:left;white-space:normal}
@media print{.plots section{break-inside:avoid}}
"""
