"""The promise of fuzz/uploads.py under a fuzzer that follows the code's branches (atheris, not installed by default).

    pip install atheris
    python fuzz/decode_atheris.py corpus/ -max_total_time=600

The folder is filled with the valid messages of fuzz/uploads.py where it is empty. An input is one byte that chooses the
model both sides know, then a message without its checksum.
"""

import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Fuzz until told to stop; atheris takes libFuzzer's options."""
    try:
        import atheris
    except ImportError:
        print("atheris is missing; pip install atheris", file=sys.stderr)
        return 1
    with atheris.instrument_imports(include=["skyfed.wire"]):
        import uploads
    cases = uploads.corpus()
    known = list({id(case.expected): case.expected for case in cases}.values())
    for folder in (Path(argument) for argument in arguments[1:2] if not argument.startswith("-")):
        folder.mkdir(exist_ok=True)
        if not any(folder.iterdir()):
            for k, case in enumerate(cases):
                chosen = next(i for i, expected in enumerate(known) if expected is case.expected)
                (folder / f"{k:04d}").write_bytes(bytes([chosen]) + case.data[: -uploads.SUM.size])

    def one(data: bytes) -> None:
        if data:
            uploads.check(uploads.sealed(data[1:]), known[data[0] % len(known)])

    atheris.Setup(arguments, one)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
