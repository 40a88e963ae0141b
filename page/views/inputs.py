"""The widgets of a form's fields: each knows its typed value, and files are uploaded when they are chosen."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nicegui import events, ui
from nicegui.elements.mixins.value_element import ValueElement

from stoker.page.access.connections import Connection
from stoker.page.content.forms import Field, bounds, files_text, input_of, json_text, with_address
from stoker.page.views.frame import attempt
from stoker.page.views.style import SMALL

UPLOAD_MOST = 200 << 20


class InputForm:
    """The form of one endpoint. `values` are shown in place of the schema's defaults."""

    def __init__(
        self, connection: Connection, endpoint: str, fields: Sequence[Field], values: Mapping[str, Any]
    ) -> None:
        self._connection, self._endpoint, self._fields = connection, endpoint, fields
        self._widgets: dict[str, ValueElement[Any]] = {}
        needed = [field for field in fields if field.required]
        for field in needed or fields:
            self._add(field, values)
        if needed and len(needed) < len(fields):
            with ui.expansion("More choices").props("dense").classes("w-[calc(100%+2rem)] -mx-4"):
                for field in fields:
                    if not field.required:
                        self._add(field, values)

    def job_input(self) -> dict[str, Any]:
        """Returns the input that the form means. Raises InputRefused."""
        return input_of(self._fields, {name: widget.value for name, widget in self._widgets.items()})

    def _add(self, field: Field, values: Mapping[str, Any]) -> None:
        value = dict(values) if field.kind == "whole" and values else values.get(field.name, field.default)
        widget = self._widget(field, value)
        widget.classes("w-full").props["aria-label"] = field.label
        self._widgets[field.name] = widget
        if field.about:
            ui.label(field.about).classes(f"{SMALL} -mt-2 mb-1")
        if field.examples:
            with ui.row().classes("gap-2 -mt-1"):
                for example in field.examples:
                    ui.button(example, on_click=lambda event, text=example: widget.set_value(text)).props(
                        "outline dense size=sm color=secondary"
                    ).classes("px-2")

    def _widget(self, field: Field, value: Any) -> ValueElement[Any]:
        match field.kind:
            case "boolean":
                return ui.switch(field.label, value=bool(value))
            case "choice":
                return ui.select(
                    list(field.choices), label=field.label, value=value, clearable=not field.required
                )
            case "integer" | "number":
                label = f"{field.label} ({bounds(field)})" if bounds(field) else field.label
                return ui.number(label, value=value, step=field.step)
            case "long":
                return ui.textarea(field.label, value=value or "").props("autogrow")
            case "json" | "whole":
                return (
                    ui.textarea(field.label, value=json_text(field, value))
                    .props("autogrow")
                    .classes("font-mono")
                )
            case "file":
                url = ui.input(f"{field.label}: an address, or choose a file", value=value or "")
                return self._with_chooser(field, url)
            case "files":
                urls = ui.textarea(
                    f"{field.label}: an address a line, or choose files", value=files_text(value)
                )
                urls.props("autogrow")
                return self._with_chooser(field, urls)
            case "text":
                return ui.input(field.label, value=value or "")

    def _with_chooser(self, field: Field, urls: ValueElement[Any]) -> ValueElement[Any]:
        """Adds a chooser of files below the widget, which gets the address of each file that is chosen."""

        async def upload(chosen: events.UploadEventArguments) -> None:
            address = await attempt(lambda: self._upload(chosen), f"{chosen.file.name} is there")
            if address is not None:
                urls.value = with_address(field, urls.value or "", address)

        chooser = ui.upload(
            label=f"Choose a file: {field.label}",
            auto_upload=True,
            max_file_size=UPLOAD_MOST,
            on_upload=upload,
        ).props("flat bordered")
        chooser.classes("w-full").mark(f"upload {field.name}").props["aria-label"] = (
            f"Choose a file: {field.label}"
        )
        return urls

    async def _upload(self, chosen: events.UploadEventArguments) -> str:
        with tempfile.TemporaryDirectory(prefix="stoker-page-") as folder:
            path = Path(folder) / (Path(chosen.file.name).name or "file")
            await chosen.file.save(path)
            return await self._connection.client.upload(self._endpoint, path, chosen.file.content_type)
