"""ramptrace: replay recorded LLM traffic against an autoscaled endpoint and see where the time to capacity went.

The command line composes the rooms' own commands, lazily: Locust (gevent) has to be imported before botocore, and
`--help` has to be quick.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

__version__ = "0.1.0"

_COMMANDS = {
    "trace": ("traces.cli", "Read, check and describe recorded traffic."),
    "replay": ("loadgen.cli", "Replay a trace, headless, and collect scaling events meanwhile."),
    "collect": ("loadgen.cli", "Collect scaling events alone."),
    "emulate": ("loadgen.cli", "Serve the emulated endpoint and its platform on loopback."),
    "analyse": ("analysis.cli", "Attribute a run's time to capacity."),
    "report": ("analysis.cli", "Write a run's report as one offline HTML file."),
    "compare": ("analysis.cli", "Compare runs: what changed, and why."),
}


class _LazyGroup(click.Group):
    """A group that imports a command's module when the command is used, and not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *_COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return super().get_command(ctx, cmd_name)
        module = importlib.import_module(_COMMANDS[cmd_name][0])
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = {name: text for name, (_, text) in _COMMANDS.items()}
        rows |= {name: command.get_short_help_str(80) for name, command in self.commands.items()}
        with formatter.section("Commands"):
            formatter.write_dl(sorted(rows.items()))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in self.list_commands(ctx):
            from traces.errors import did_you_mean

            known = self.list_commands(ctx)
            raise click.UsageError(f'no command "{args[0]}"{did_you_mean(args[0], known)}; see ramptrace --help')
        return super().resolve_command(ctx, args)


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="ramptrace")
def cli() -> None:
    """Replay recorded LLM traffic against an autoscaled endpoint and see where the time to capacity went."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; turns errors into one line and an exit code."""
    from traces.errors import EXIT_INTERRUPTED, RamptraceError

    try:
        code = cli.main(arguments, prog_name="ramptrace", standalone_mode=False)
    except RamptraceError as error:
        click.echo(f"ramptrace: {error}", err=True)
        code = error.exit_code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("ramptrace: interrupted; what was recorded is kept", err=True)
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe went away (`ramptrace ... | head`): nothing is left to say, and nobody to say it to.
        sys.stderr.close()
        code = 0
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
