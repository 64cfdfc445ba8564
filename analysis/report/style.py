# ruff: noqa: E501 - a style sheet reads better with one rule to a line
"""The report's style sheet: system fonts, light and dark from one set of variables."""

from __future__ import annotations

from typing import Final

CSS: Final = """
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#57606a;--paper:#fff;--card:#f6f8fa;--line:#d0d7de;--warn:#9a5b00;--bad:#b42318}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9da7b1;--paper:#0d1117;--card:#161b22;--line:#30363d;--warn:#e3b341;--bad:#ff8a80}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1080px;padding:28px 24px 60px;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
h1{font-size:25px;line-height:1.3;margin:6px 0 8px;font-weight:650;text-wrap:balance}
h2{font-size:19px;margin:36px 0 6px}h3{font-size:15px;margin:22px 0 6px}
p{margin:6px 0;max-width:80ch}.soft,.emulated{color:var(--soft)}.brand{color:var(--soft);letter-spacing:.02em}
.badge{margin-left:10px;padding:2px 8px;border-radius:4px;background:#a84300;color:#fff;font-weight:700;font-size:12px;letter-spacing:.06em}
section{border-top:1px solid var(--line);margin-top:26px}
.warning{color:var(--warn)}.terms p{margin:2px 0}
.card p{max-width:none}.card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px 16px;margin:10px 0}
.chart{color:var(--ink);width:100%;min-height:60px;margin:6px 0}
.chart svg{max-width:100%}.chart svg text{fill:var(--ink)!important}
.scroll{overflow-x:auto}table{border-collapse:collapse;margin:8px 0;font-size:14px}
th,td{text-align:left;padding:4px 14px 4px 0;border-bottom:1px solid var(--line);vertical-align:top}th{color:var(--soft);font-weight:600}
tbody td{white-space:nowrap}code.id{white-space:nowrap}tbody th[rowspan]{color:var(--ink)}
.free td{white-space:normal}.free td code{overflow-wrap:anywhere}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
dl.summary{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:8px;margin:10px 0}
.summary div{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:6px 10px}
.summary dt{color:var(--soft);font-size:13px}.summary dd{margin:0;font-size:17px;font-variant-numeric:tabular-nums}.summary dd.soft{font-size:12px}
details{margin:8px 0}summary{cursor:pointer}pre{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:10px;overflow-x:auto;font:12px/1.4 ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere}
:focus-visible{outline:3px solid #0b5cad;outline-offset:2px}
.swatch{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:7px}.part{padding-left:20px}
.name,.key{display:inline-flex;align-items:baseline}.swatch{flex:none}.key{margin-right:16px;color:var(--soft);font-size:13px}
ul{padding-left:20px;margin:6px 0}li.warning{color:var(--warn)}li.error{color:var(--bad);font-weight:600}
code{font:13px ui-monospace,monospace;overflow-wrap:anywhere}
#vg-tooltip-element{position:absolute;visibility:hidden;padding:6px 8px;background:var(--card);color:var(--ink);border:1px solid var(--line);border-radius:4px;font-size:12px;z-index:9}
#vg-tooltip-element.visible{visibility:visible}
@media(max-width:600px){tbody td:first-child{white-space:normal}table{font-size:13px}th,td{padding-right:9px}body{padding:18px 14px 40px}h1{font-size:21px}}
@media print{
:root{--ink:#1b1f24;--soft:#57606a;--paper:#fff;--card:#f6f8fa;--line:#d0d7de;--warn:#9a5b00;--bad:#b42318;color-scheme:light}
body{max-width:none;padding:0;font-size:13px}table{font-size:11.5px}th,td{padding-right:10px}
h1,h2,h3,h2+p{break-after:avoid}tr,li,.card,.figure,.summary,.chart,.whole,.scroll{break-inside:avoid}.scroll{overflow:visible}
.chart svg{height:auto}
}
"""
