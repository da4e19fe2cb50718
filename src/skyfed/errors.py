"""What can go wrong, by who has to act; the command line turns each into one line and an exit code."""


class SkyfedError(Exception):
    """The work failed."""

    exit_code = 1


class BadInputError(SkyfedError):
    """A config, a file or an argument is not usable; the message says what, where, and what is allowed."""

    exit_code = 2


class DivergedError(SkyfedError):
    """Training went to infinity; other algorithms may still do well."""


class StorageError(SkyfedError):
    """A folder or file could not be read, written or locked."""

    exit_code = 3


class InfeasibleError(SkyfedError):
    """No flight plan meets the constraints, or none was found and no fallback verifies."""
