"""The console command `performative`: an interrupt ends it with one line and code 130, during imports too."""

import sys


def main() -> None:
    try:
        from performative.cli import main as run_command

        run_command()
    except KeyboardInterrupt:
        print("error: interrupted.", file=sys.stderr)
        sys.exit(130)
