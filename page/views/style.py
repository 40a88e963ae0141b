"""The look of all pages: one scale of type and space, few colours, the same in light and in dark.

Colours are Quasar's names with our values, so that text on each of them can be read: `primary` is for what
people do, the others say in which state something is.
"""

from __future__ import annotations

from typing import Any

from nicegui import ui

QUIET = "text-slate-600 dark:text-slate-400"
"""Text beside what is looked for."""

SMALL = f"text-xs {QUIET}"
TITLE = "text-lg font-semibold"
MONO = f"font-mono text-sm {QUIET}"

_CSS = """
body.body--light {
  --q-primary: #b83a0a !important; --q-secondary: #475569 !important; --q-accent: #0f766e !important;
  --q-positive: #15803d !important; --q-negative: #b91c1c !important; --q-warning: #a16207 !important;
  --line: #e2e8f0; --paper: #ffffff; --ground: #f8fafc; --ink: #0f172a;
}
body.body--dark {
  --q-primary: #fb923c !important; --q-secondary: #94a3b8 !important; --q-accent: #2dd4bf !important;
  --q-positive: #4ade80 !important; --q-negative: #f87171 !important; --q-warning: #fbbf24 !important;
  --q-dark: #111a2e !important; --q-dark-page: #0b1120 !important;
  --line: #26324a; --paper: #111a2e; --ground: #0b1120; --ink: #e2e8f0;
}
body { background: var(--ground); color: var(--ink); }
.q-card, .q-table__card { background: var(--paper); border: 1px solid var(--line); border-radius: 12px;
  box-shadow: none; color: var(--ink); }
.q-table__card { border-radius: 8px; }
.q-table th { color: var(--q-secondary); font-weight: 600; }
.q-field__label { color: var(--q-secondary); opacity: 1; }
.q-field--outlined .q-field__control:before { border-color: #7c8aa0; }
.nicegui-link { color: var(--q-primary); text-underline-offset: 3px; }
@layer theme {  /* of two important rules, that of the earlier layer holds */
  .body--dark .bg-primary, .body--dark .q-btn.bg-negative { color: #1c1206 !important; }
}
.q-btn { border-radius: 8px; }
.q-dialog__inner > .q-card { position: relative; z-index: 1; }
.q-loading-bar { display: none; }
.q-notification.bg-positive { background: #166534 !important; color: white !important; }
.q-notification.bg-negative { background: #991b1b !important; color: white !important; }
.q-notification.bg-warning { background: #854d0e !important; color: white !important; }
.q-notification .q-btn { color: white !important; }
:focus-visible { outline: 3px solid var(--q-primary); outline-offset: 2px; border-radius: 4px; }
.q-tab-panel { padding: 16px 0; background: transparent; }
.q-tab-panels { background: transparent; }
.nicegui-code { background: var(--ground); border: 1px solid var(--line); border-radius: 8px; }
.nicegui-log { background: var(--paper); border: 1px solid var(--line); border-radius: 8px; padding: 12px; }
.q-uploader { border-color: var(--line); background: transparent; border-radius: 8px; width: 100%; }
.q-uploader__header { background: var(--ground); color: var(--ink); }
.q-uploader__list { max-height: 140px; padding: 8px; }
.q-uploader__list:empty { padding: 0; min-height: 0; }
.stage { border: 2px dashed var(--line); border-radius: 12px; min-height: 320px; }
.q-timeline__title { font-size: 15px; line-height: 1.4; margin-bottom: 0; }
.q-timeline__subtitle { letter-spacing: 0; font-weight: 400; margin-bottom: 0; text-transform: none; }
.q-timeline__content { padding-bottom: 12px; gap: 0; }
.q-timeline__content > * { margin-top: 0; margin-bottom: 0; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 12px 24px; }
.bar { height: 6px; border-radius: 3px; background: var(--line); overflow: hidden; }
.bar > div { height: 100%; background: var(--q-accent); }
.state:before { content: ""; display: inline-block; width: 8px; height: 8px; border-radius: 4px;
  background: currentColor; margin-right: 6px; }
@media (prefers-reduced-motion: reduce) { * { animation: none !important; transition: none !important; } }
"""

STATE_CELL = r"""
<q-td :props="props"><span :class="'state text-' + props.row.colour">{{ props.value }}</span></q-td>
"""
"""A cell of a state, with the colour that its row names. Values are shown as text."""

LINK_CELL = r"""
<q-td :props="props"><a class="nicegui-link font-mono" :href="props.row.link">{{ props.value }}</a></q-td>
"""
"""A cell that links to the row's own page, which keys and screen readers find."""

BAR_CELL = r"""
<q-td :props="props"><div>{{ props.value }}</div>
<div class="bar" v-if="props.row[props.col.name + 'Share'] !== null">
<div :style="{width: 100 * props.row[props.col.name + 'Share'] + '%'}"></div></div></q-td>
"""
"""A cell of an amount, with a bar of the share that its row has beside it."""


def use() -> None:
    """Sets the look of everything that is drawn from now on."""
    ui.add_css(_CSS, shared=True)
    ui.card.default_props("flat")
    ui.card.default_classes("w-full gap-3 p-4")
    ui.button.default_props("no-caps unelevated")
    ui.table.default_props("flat dense wrap-cells")
    ui.table.default_classes("w-full")
    for field in (ui.input, ui.number, ui.select, ui.textarea):
        field.default_props("outlined dense")


def heading(text: str, level: int = 2) -> ui.label:
    """Draws a heading that screen readers find."""
    size = "text-2xl" if level == 1 else "text-base"
    return ui.label(text).classes(f"{size} font-semibold").props(f"role=heading aria-level={level}")


def fact(title: str, text: str) -> None:
    """Draws a value below its title."""
    with ui.column().classes("gap-0 min-w-0"):
        ui.label(title).classes(SMALL)
        ui.label(text).classes("text-base break-words")


def column(name: str, label: str, align: str = "left") -> dict[str, Any]:
    """Returns a column of a table."""
    return {"name": name, "label": label, "field": name, "align": align}
