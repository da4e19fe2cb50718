"""The tables of a run: their columns, collected from where they are declared, and whether a file has them."""

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from skyfed.columns import Column
from skyfed.theory.estimate import COLUMNS as THEORY
from skyfed.world.columns import ROUND_COLUMNS, UPLOAD_COLUMNS, VEHICLE_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

ROUNDS = (
    Column("round", "int", "the round, from 0"),
    Column("accuracy", "float", "on the test set as it has grown so far, 0 to 1", empty=True),
    Column("accuracy_full", "float", "on the whole test set", empty=True),
    Column("loss", "float", "on the test set so far", empty=True),
    Column("train_loss", "float", "mean training loss of the vehicles", empty=True),
    Column("test_size", "int", "samples in the test set so far"),
    Column("train_size", "int", "training samples that all vehicles hold"),
    Column("eta", "float", "global learning rate"),
    Column("eta_local", "float", "local learning rate"),
    Column("seconds", "float", "wall seconds of the round on this machine, measured"),
    Column("wire_bytes", "int", "bytes of all uploads, measured"),
    Column("downlink_bytes", "int", "bytes of what the next round's vehicles are sent, measured"),
    Column("broadcast_bytes", "int", "the same with equal messages counted once", empty=True, since="0.2.0"),
    Column("uploads", "int", "uploads that arrived"),
    Column("dropped", "int", "vehicles whose upload was not used"),
    Column("forgetting", "float", "mean over places of the best past accuracy less the present one", empty=True),
    Column("accuracy_class", "floats", "accuracy per place, on the whole test set", empty=True),
    Column(
        "accuracy_vehicle",
        "floats",
        "accuracy of each vehicle on its own test data: the whole test set, weighted by "
        "the class shares of what the vehicle has sensed",
        empty=True,
        since="0.2.0",
    ),
    Column("model_digest", "text", "hash of the model after the round (XXH3)", empty=True, since="0.2.0"),
    Column(
        "tested_at",
        "float",
        "where appearance drifts: mission seconds at which the model was tested, on samples as they look then",
        empty=True,
        since="0.2.0",
    ),
    Column("accuracy_start", "float", "on the whole test set as it looked at take-off", empty=True, since="0.2.0"),
    Column("forgetting_start", "float", "the best past accuracy_start less the present one", empty=True, since="0.2.0"),
    *ROUND_COLUMNS,
)
UPLINK = (
    Column("round", "int", "the round, from 0"),
    Column("vehicle", "int", "the vehicle, from 0"),
    Column("wire_bytes", "int", "bytes of the message, measured"),
    Column("buffer_bytes", "int", "bytes of batch-norm buffers in it, measured"),
    Column("measured_seconds", "float", "wall seconds of the vehicle's round on this machine, measured"),
    Column("measured_cpu_seconds", "float", "CPU seconds of the vehicle's round on this machine, measured"),
    Column("train_loss", "float", "mean training loss", empty=True),
    Column("dropped", "text", "why the upload was not used", empty=True),
    Column("samples", "int", "training samples that the vehicle holds"),
    Column("digest", "text", "hash of the message (XXH3)", empty=True, since="0.2.0"),
    *UPLOAD_COLUMNS,
)
VEHICLES = (
    *VEHICLE_COLUMNS,
    Column("chosen", "bool", "whether the algorithm chose it for this round"),
    Column("uploaded", "bool", "whether an upload of it arrived"),
    Column("reason", "text", "why an upload is missing or was not used", empty=True),
)
TABLES: dict[str, tuple[Column, ...]] = {"rounds": ROUNDS, "uplink": UPLINK, "vehicles": VEHICLES, "theory": THEORY}
_FIRST = "0.1.0"


def named(*groups: Sequence[Column]) -> dict[str, Column]:
    """Return columns by name; the first declaration counts."""
    columns: dict[str, Column] = {}
    for column in chain(*groups):
        columns.setdefault(column.name, column)
    return columns


def schema(columns: dict[str, Column]) -> "pa.Schema":
    """Return the Arrow schema of a table with these columns."""
    import pyarrow as pa

    kinds = {
        "int": pa.int64(),
        "float": pa.float64(),
        "bool": pa.bool_(),
        "text": pa.string(),
        "floats": pa.list_(pa.float64()),
    }
    return pa.schema([(column.name, kinds[column.kind]) for column in columns.values()])


def misfit(name: str, saved: "pa.Schema") -> str:
    """Say how a file's schema differs from that of a table; empty if it fits. It may have further columns."""
    columns = named(TABLES[name])
    for field in schema(columns):
        count = len(saved.get_all_field_indices(field.name))
        if not count and columns[field.name].since != _FIRST:
            continue
        if count != 1:
            return f"column {field.name!r} is {'there twice' if count else 'missing'}"
        kind = saved.field(field.name).type
        if kind != field.type:
            return f"column {field.name!r} holds {kind}, not {field.type}"
    return ""


def gap(name: str, table: "pa.Table") -> str:
    """Say which column of a table lacks a value that it must have; empty if none does."""
    columns = named(TABLES[name])
    for column in table.column_names:
        if column in columns and not columns[column].empty and table.column(column).null_count:
            return f"column {column!r} has no value in some rows"
    return ""


def fits(name: str, row: Any) -> bool:
    """Tell whether a line of a table that is still growing has its columns, and values where it must."""
    return (
        isinstance(row, dict)
        and all(column.name in row for column in TABLES[name] if column.since == _FIRST)
        and isinstance(row["round"], int)
        and all(column.empty or row.get(column.name, "") is not None for column in TABLES[name])
    )
