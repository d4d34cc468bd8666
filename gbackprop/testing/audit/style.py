"""The page's style: one sheet, light and dark, that reads on a phone."""

COLORED = ("same", *(f"e{k}" for k in range(9)), *(f"{sign}{k}" for sign in "np" for k in range(1, 6)), "nan")
"""Classes of the cells of matrices, and of their legends."""

CSS = """
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #17202b; --soft: #5a6776; --line: #d9dfe6; --link: #0b5cad;
  --good: #17703a; --bad: #b3181d; --bad-back: #fdebea; --same: #e0e6ec; --nan: #b3181d; --halo: #ffffff;
  --e0: #dcebf8; --e1: #c2daf0; --e2: #9cc6e6; --e3: #6fabd4; --e4: #8480c0; --e5: #a2509f; --e6: #c22f72;
  --e7: #c4211c; --e8: #6d0008;
  --n1: #e0ecf8; --n2: #b3d1ee; --n3: #74a9da; --n4: #2f74b5; --n5: #0b3a6b;
  --p1: #fdebd8; --p2: #f9c99a; --p3: #ee9a4d; --p4: #c9661a; --p5: #7a3300;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #10151b; --card: #181f27; --ink: #e6ebf0; --soft: #9dabb9; --line: #303b47; --link: #7db8f5;
    --good: #7bd79b; --bad: #ff9d95; --bad-back: #431a1a; --same: #28323d; --nan: #ff9d95; --halo: #000000;
    --e0: #1d3449; --e1: #214a6b; --e2: #2a628f; --e3: #3f80b3; --e4: #7b74c9; --e5: #b066b5; --e6: #e2649c;
    --e7: #ff8157; --e8: #ffdc5c;
    --n1: #1b2c3d; --n2: #214767; --n3: #2d6da3; --n4: #4f9de0; --n5: #a9d4ff;
    --p1: #3a2a1a; --p2: #5e3d1c; --p3: #97591c; --p4: #d9822b; --p5: #ffc98a;
  }
}
* { box-sizing: border-box; overflow-wrap: anywhere; }
body { max-width: 66rem; margin: 0 auto; padding: .6rem; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h2 { font-size: 1.15rem; margin: 0; }
h2 + p { margin: 0; }
a { color: var(--link); }
code, dd, pre { font: .88em/1.4 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
pre { padding: .5rem; overflow-x: auto; overflow-wrap: normal; background: var(--card); }
footer, small, figcaption, .legend { font-size: .9rem; }
footer, .soft, th, dt { color: var(--soft); }
.good { color: var(--good); }
.bad { color: var(--bad); font-weight: 600; }
section, nav { margin: 1rem 0; padding: .8rem; background: var(--card); border: 1px solid var(--line);
  border-radius: .6rem; }
.failures { padding: .6rem 1rem .6rem 1.8rem; background: var(--bad-back); }
li:target { outline: 2px solid var(--link); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; }
dd, figure { margin: 0; }
.pictures, .pictures div { display: flex; flex-wrap: wrap; gap: 0 2rem; margin: .6rem 0 0; }
figure { max-width: 26rem; }
svg { display: block; max-width: 100%; margin: 0 -12px; }
.frame, .halo, .ring { fill: none; stroke: var(--line); }
.halo { stroke: var(--halo); stroke-width: 4.5; }
.ring { stroke: var(--ink); stroke-width: 2; }
.claims, .legend { padding: 0; list-style: none; }
.legend { display: flex; flex-wrap: wrap; gap: 0 .8rem; margin: 0; }
.legend i { display: inline-block; width: 1em; height: 1em; margin-right: .3em; vertical-align: -.1em; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: .2rem .6rem .2rem 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th, td + td { white-space: nowrap; }
td:last-child { white-space: normal; }
""" + "".join(f".{kind} {{ fill: var(--{kind}); background: var(--{kind}); }}\n" for kind in COLORED)
