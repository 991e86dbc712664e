"""How a report looks: one style sheet, for light and dark screens and for paper."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --ink: #1c2227; --soft: #5b6670; --line: #dde2e6; --back: #fff; --panel: #f5f7f9;
  --leaks: #b3261e; --leaks-back: #fbe3e0; --holds: #1b6e3a; --holds-back: #dcf1e2;
  --partly: #8a5a00; --partly-back: #fcefd3; --open: #46506b; --open-back: #e6e8f0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --soft: #9aa7b2; --line: #333c45; --back: #14181c;
  --panel: #1d2329; --leaks: #ff9d93; --leaks-back: #47201c; --holds: #86dca2; --holds-back: #173824;
  --partly: #f3c66b; --partly-back: #413110; --open: #b9c2dc; --open-back: #2a3042; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); max-width: 82rem;
  margin: 2.2rem auto 4rem; padding: 0 1.4rem; }
h1 { font-size: 1.75rem; line-height: 1.25; margin: 0 0 .2rem; letter-spacing: -.01em; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .5rem; padding-bottom: .3rem; border-bottom: 2px solid var(--line); }
h3 { font-size: .95rem; margin: 0 0 .4rem; font-weight: 600; }
p { max-width: 62rem; } .soft { color: var(--soft); }
pre { font: 13px/1.45 ui-monospace, monospace; background: var(--panel); border: 1px solid var(--line);
  border-radius: 6px; padding: .7rem 1rem; white-space: pre-wrap; overflow-wrap: anywhere; }
.tiles { display: flex; flex-wrap: wrap; gap: .7rem; margin: 1rem 0; }
.tile { border-radius: 8px; padding: .55rem .9rem; flex: 1 1 13rem; }
.tile b { font-size: 1.5rem; margin-right: .4rem; } .tile span { display: block; font-size: 12.5px; opacity: .85; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13.5px; }
th, td { border-bottom: 1px solid var(--line); padding: .36rem .65rem; text-align: left; vertical-align: top; }
th { background: var(--panel); font-weight: 600; }
tbody tr:hover td { background: var(--panel); }
td.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
td.long { min-width: 21rem; font-size: 12.5px; color: var(--soft); }
#verdicts td { min-width: 8.5rem; } #verdicts td.name { min-width: 0; font-weight: 600; white-space: nowrap; }
.why { display: block; font-size: 12.5px; color: var(--soft); margin-top: .15rem; }
.verdict { font-weight: 600; border-radius: 4px; padding: .08rem .5rem; white-space: nowrap; }
.leaks { background: var(--leaks-back); color: var(--leaks); }
.holds { background: var(--holds-back); color: var(--holds); }
.partly { background: var(--partly-back); color: var(--partly); }
.open { background: var(--open-back); color: var(--open); }
tr.null td, tr.oracle td, tr.undefended td { color: var(--soft); }
.warning { border-left: 4px solid var(--partly); background: var(--partly-back); padding: .5rem .9rem; margin: .5rem 0;
  border-radius: 0 6px 6px 0; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(30rem, 1fr)); gap: 1rem; }
.plots figure { margin: 0; border: 1px solid var(--line); border-radius: 8px; padding: .8rem; }
.plots figcaption { font-weight: 600; margin-bottom: .4rem; }
.plots svg { width: 100%; height: auto; }
.gallery { display: grid; grid-template-columns: repeat(auto-fill, minmax(25rem, 1fr)); gap: 1rem; }
.card { border: 1px solid var(--line); border-radius: 8px; padding: .7rem .9rem; break-inside: avoid; }
.card figure { display: inline-block; margin: .3rem .55rem .2rem 0; text-align: center; }
.card img { image-rendering: pixelated; border: 1px solid var(--line); margin-right: 2px; }
.card figcaption { font-size: 12px; color: var(--soft); }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink); } svg .axis { stroke: var(--soft); }
svg .grid { stroke: var(--line); } details summary { cursor: pointer; color: var(--soft); margin: .6rem 0; }
@media print { body { max-width: none; margin: 0; } .scroll { overflow: visible; } }
"""
