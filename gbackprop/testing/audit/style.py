"""The page's style: one sheet, light and dark, that reads on a phone."""

CSS = """
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #fff; --ink: #17202b; --soft: #5a6776; --line: #d9dfe6; --link: #0b5cad;
  --good: #17703a; --good-back: #e2f4e8; --bad: #b3181d; --bad-back: #fdebea; --mute-back: #edf0f3;
  --same: #e0e6ec; --ring: #000; --halo: #fff;
  --e0: #dcebf8; --e1: #c2daf0; --e2: #9cc6e6; --e3: #6fabd4; --e4: #8480c0; --e5: #a2509f; --e6: #c22f72;
  --e7: #c4211c; --e8: #6d0008;
  --n1: #e0ecf8; --n2: #b3d1ee; --n3: #74a9da; --n4: #2f74b5; --n5: #0b3a6b;
  --p1: #fdebd8; --p2: #f9c99a; --p3: #ee9a4d; --p4: #c9661a; --p5: #7a3300;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #10151b; --card: #181f27; --ink: #e6ebf0; --soft: #9dabb9; --line: #303b47; --link: #7db8f5;
    --good: #7bd79b; --good-back: #143322; --bad: #ff9d95; --bad-back: #431a1a; --mute-back: #252e38;
    --same: #28323d; --ring: #fff; --halo: #000;
    --e0: #1d3449; --e1: #214a6b; --e2: #2a628f; --e3: #3f80b3; --e4: #7b74c9; --e5: #b066b5; --e6: #e2649c;
    --e7: #ff8157; --e8: #ffdc5c;
    --n1: #1b2c3d; --n2: #214767; --n3: #2d6da3; --n4: #4f9de0; --n5: #a9d4ff;
    --p1: #3a2a1a; --p2: #5e3d1c; --p3: #97591c; --p4: #d9822b; --p5: #ffc98a;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
header, main, footer { max-width: 66rem; margin: 0 auto; padding: 0 1rem; }
header { padding-top: 2rem; }
footer { padding-top: .5rem; padding-bottom: 2rem; color: var(--soft); font-size: .9rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .5rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 0; overflow-wrap: anywhere; }
h3 { font-size: 1rem; margin: 1.2rem 0 .4rem; }
p { margin: .4rem 0; max-width: 46rem; }
a { color: var(--link); }
a:focus-visible, summary:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
code, .math, td.method { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: .88em; }
code { overflow-wrap: anywhere; }
pre { margin: .4rem 0; padding: .5rem .7rem; overflow-x: auto; background: var(--card); border-radius: .3rem;
  font: .82rem/1.4 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
.soft { color: var(--soft); }
.chips { display: flex; flex-wrap: wrap; gap: .5rem; padding: 0; margin: 1rem 0; list-style: none; }
.chips li { padding: .15rem .7rem; border-radius: 1rem; background: var(--mute-back); }
.chips .good, .chips .bad { font-weight: 600; }
.good { color: var(--good); } .bad { color: var(--bad); font-weight: 600; }
.chips .good { background: var(--good-back); } .chips .bad { background: var(--bad-back); }
section, nav { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: 1rem 1.2rem;
  margin: 1rem 0; }
section.failed { border-color: var(--bad); }
.head { display: flex; flex-wrap: wrap; gap: .2rem 1rem; align-items: baseline; justify-content: space-between; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: .6rem 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.failures { margin: .6rem 0; padding: .6rem 1rem .6rem 1.8rem; background: var(--bad-back); border-radius: .4rem; }
.failures li { margin: .2rem 0; overflow-wrap: anywhere; }
.pictures { display: flex; flex-wrap: wrap; gap: 1rem 2.5rem; }
figure { margin: .6rem 0; max-width: 26rem; min-width: 0; }
figcaption { font-size: .9rem; overflow-wrap: anywhere; }
figure strong { font-weight: 600; }
svg { display: block; max-width: 100%; height: auto; margin: .3rem 0; }
svg text { font: 11px system-ui, sans-serif; fill: var(--soft); }
svg .worst text { fill: var(--ink); font-weight: 600; }
.same { fill: var(--same); }
.e0 { fill: var(--e0); } .e1 { fill: var(--e1); } .e2 { fill: var(--e2); } .e3 { fill: var(--e3); }
.e4 { fill: var(--e4); } .e5 { fill: var(--e5); } .e6 { fill: var(--e6); } .e7 { fill: var(--e7); }
.e8 { fill: var(--e8); }
.n1 { fill: var(--n1); } .n2 { fill: var(--n2); } .n3 { fill: var(--n3); } .n4 { fill: var(--n4); }
.n5 { fill: var(--n5); } .p1 { fill: var(--p1); } .p2 { fill: var(--p2); } .p3 { fill: var(--p3); }
.p4 { fill: var(--p4); } .p5 { fill: var(--p5); } .nan { fill: var(--bad); }
.frame { fill: none; stroke: var(--line); }
.hair { stroke: var(--soft); stroke-dasharray: 2 3; fill: none; }
.halo { fill: none; stroke: var(--halo); stroke-width: 4.5; }
.ring { fill: none; stroke: var(--ring); stroke-width: 2; }
.allowed { fill: var(--ink); }
details { margin-top: .8rem; } summary { cursor: pointer; }
table { border-collapse: collapse; width: 100%; margin: .6rem 0 0; font-size: .9rem; }
th { text-align: left; color: var(--soft); font-weight: 600; }
th, td { padding: .2rem .8rem .2rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td { overflow-wrap: anywhere; }
td.method { white-space: nowrap; }
.verdict { white-space: nowrap; } nav td.first { width: 100%; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
tr.failed td { background: var(--bad-back); }
tr:target td { outline: 2px solid var(--link); }
@media (max-width: 44rem) {
  header, main, footer { padding-left: .6rem; padding-right: .6rem; } section, nav { padding: .8rem; }
  table, tbody { display: block; } thead { position: absolute; clip-path: inset(50%); }
  tr { display: grid; grid-template-columns: 1fr max-content; padding: .35rem 0; border-bottom: 1px solid var(--line); }
  td { border: 0; padding: 0 .4rem 0 0; } td:empty { display: none; }
  td.method { white-space: normal; }
  td.wide { grid-column: 1 / -1; } td.first { grid-row: 1; grid-column: 1; }
  td.verdict { grid-row: 1; grid-column: 2; text-align: right; }
  .number { text-align: left; } td[data-label]::before { content: attr(data-label) " "; color: var(--soft); }
  dl { grid-template-columns: 1fr; } dd { margin-bottom: .3rem; }
}
@media print { body { background: none; } section { break-inside: avoid; } }
"""
