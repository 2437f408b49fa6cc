"""`diskless-proxy config`: the settings that a proxy would run with, and their meaning. Nothing has to run."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proxy.config import ConfigError
from proxy.console.config_file import config_option
from proxy.console.console import fail, output

if TYPE_CHECKING:
    from proxy.config.effective import Effective
    from proxy.config.reference import Setting

app = typer.Typer(help="Settings: their values, their meaning, their sources.", no_args_is_help=True)

_WIDTH = 100


def _names(incomplete: str) -> list[str]:
    from proxy.config.reference import all_settings, sections

    return [name for name in (*sections(), *(one.name for one in all_settings())) if name.startswith(incomplete)]


@app.command()
def show(
    config: Annotated[Path, config_option("The YAML file with the settings.")],
    changed: Annotated[bool, typer.Option("--changed", help="Only settings that differ from their defaults.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document to standard output.")] = False,
    as_yaml: Annotated[bool, typer.Option("--yaml", help="A settings file with all values.")] = False,
) -> None:
    """Show what file and environment come to, and which of them says it. Secrets are not shown."""
    from proxy.config.effective import as_yaml as written_yaml
    from proxy.config.effective import effective

    if as_json and as_yaml:
        fail("--json and --yaml: choose one of them")
    try:
        found = [one for one in effective(config) if one.changed or not changed]
    except ConfigError as error:
        fail(str(error))
    if as_json:
        typer.echo(json.dumps({"settings": [_row(one) for one in found]}))
    elif as_yaml:
        typer.echo(written_yaml(found))
    else:
        _print_table(found)


@app.command()
def explain(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="Settings as the file, Kafka or the environment writes them; sections; beginnings.",
            autocompletion=_names,
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document to standard output.")] = False,
) -> None:
    """Explain settings: type, unit, default, range, whether a reload changes them, what they do.

    Without a name: list the sections, and the settings outside of them.
    """
    from proxy.config.reference import named, near_names, sections

    if not names:
        _list_sections(as_json)
        return
    found: dict[str, Setting] = {}
    for name in names:
        settings = named(name)
        if not settings:
            near = near_names(name)
            hint = f"did you mean {' or '.join(near)}?" if near else f"the sections are {', '.join(sections())}"
            fail(f"{name}: no such setting; {hint}")
        found |= {one.name: one for one in settings}
    if as_json:
        typer.echo(json.dumps({"settings": [_entry(one) for one in found.values()]}))
        return
    of_sections = [f"{name}: {text}" for name, text in sections().items() if name in names]
    entries = [_explained(one) for one in found.values()]
    typer.echo("\n\n".join([fill(text, _WIDTH) for text in of_sections] + entries))


@app.command()
def schema() -> None:
    """Print the JSON schema of the settings file, for editors and other checkers."""
    from proxy.config.schema import schema as whole

    typer.echo(json.dumps(whole(), indent=1))


def _list_sections(as_json: bool) -> None:
    from proxy.config.reference import all_settings, sections

    alone = [one for one in all_settings() if len(one.path) == 1 and not one.is_section]
    if as_json:
        listed = [{"name": name, "text": text} for name, text in sections().items()]
        typer.echo(json.dumps({"sections": listed, "settings": [_entry(one) for one in alone]}))
        return
    lines = [fill(f"{name}: {text}", _WIDTH, subsequent_indent="  ") for name, text in sections().items()]
    lines += ["", "Settings outside of sections:", fill(", ".join(one.name for one in alone), _WIDTH)]
    lines += ["", "`diskless-proxy config explain NAME` says more of a section or a setting."]
    typer.echo("\n".join(lines))


def _row(one: Effective) -> dict[str, Any]:
    row = {"name": one.setting.name, "value": one.value, "source": one.source, "changed": one.changed}
    return row | {"variable": one.variable, "reload": one.setting.reloadable, "secret": one.setting.secret}


def _entry(one: Setting) -> dict[str, Any]:
    return {
        "name": one.name,
        "type": one.type,
        "unit": one.unit or None,
        "required": one.required,
        "default": None if one.required else one.default_text,
        "range": one.range.replace("`", "") or None,
        "reload": one.reloadable,
        "variable": one.variable,
        "text": one.text,
    }


def _print_table(found: list[Effective]) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table("setting", "value", "from")
    for one in found:
        value = "missing" if one.value is None else one.value if isinstance(one.value, str) else json.dumps(one.value)
        table.add_row(one.setting.name, escape(value), one.variable or one.source)
    output().print(table)


def _explained(one: Setting) -> str:
    kind = f"{one.type}, {one.unit}" if one.unit else one.type
    facts = [("type", kind), ("default", one.default_text), ("allowed", one.range.replace("`", ""))]
    facts += [("change by", "reload (SIGHUP)" if one.reloadable else "restart"), ("environment", one.variable)]
    lines = [f"  {name + ':':<13}{text}" for name, text in facts if text]
    text = fill(one.text, _WIDTH, initial_indent="  ", subsequent_indent="  ")
    return "\n".join([one.name, *lines, *([text] if text else [])])
