"""What the `skyfed` command and `python -m skyfed` start."""

import signal


def main() -> None:
    """Run the command line; Ctrl-C ends it without a word while its modules are still being loaded."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from skyfed.cli import main as run

    run()


if __name__ == "__main__":
    main()
