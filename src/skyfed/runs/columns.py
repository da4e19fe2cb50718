"""The columns of a run's tables (name: kind), and whether a table has them."""

from typing import TYPE_CHECKING, Any

from skyfed.theory.estimate import COLUMNS as THEORY

if TYPE_CHECKING:
    import pyarrow as pa

ROUNDS = {
    "round": "int", "accuracy": "float", "accuracy_full": "float", "loss": "float", "train_loss": "float",
    "test_size": "int", "train_size": "int", "eta": "float", "eta_local": "float", "seconds": "float",
    "wire_bytes": "int", "downlink_bytes": "int", "uploads": "int", "dropped": "int",
    "forgetting": "float", "accuracy_class": "floats", "model_digest": "text",
}  # fmt: skip
UPLINK = {
    "round": "int", "vehicle": "int", "delta": "float", "kept": "int", "kept_live": "int", "quantised": "bool",
    "paper_bits": "float", "wire_bytes": "int", "buffer_bytes": "int", "modelled_seconds": "float",
    "measured_seconds": "float", "measured_cpu_seconds": "float", "modelled_energy": "float", "train_loss": "float",
    "dropped": "text", "pruned_share": "float", "raw_probability": "float", "quantiser_bound": "float",
    "quantiser_variance": "float", "fly_seconds": "float", "send_seconds": "float", "fly_joules": "float",
    "send_joules": "float", "wait_joules": "float", "rate": "float", "late": "float", "battery_left": "float",
    "samples": "int", "turned": "bool", "digest": "text",
}  # fmt: skip
TABLES = {"rounds": ROUNDS, "uplink": UPLINK, "theory": THEORY}
_LATER = ("turned", "digest", "model_digest")  # added since the first format: folders of before are without
_EMPTY = {  # columns that may be empty in places: not tested, nothing finite, not dropped, no battery
    "rounds": ("accuracy", "accuracy_full", "loss", "train_loss", "forgetting", "accuracy_class", "model_digest"),
    "uplink": (
        "train_loss",
        "dropped",
        "pruned_share",
        "quantiser_bound",
        "quantiser_variance",
        "battery_left",
        "turned",
        "digest",
    ),
    "theory": tuple(name for name, kind in THEORY.items() if kind == "float"),
}


def schema(name: str) -> "pa.Schema":
    """Return the Arrow schema of one of the tables."""
    import pyarrow as pa

    kinds = {
        "int": pa.int64(),
        "float": pa.float64(),
        "bool": pa.bool_(),
        "text": pa.string(),
        "floats": pa.list_(pa.float64()),
    }
    return pa.schema([(column, kinds[kind]) for column, kind in TABLES[name].items()])


def misfit(name: str, found: "pa.Schema") -> str:
    """Say in what a file's schema is not that of one of the tables; nothing if it is. It may have further columns."""
    for column in schema(name):
        there = len(found.get_all_field_indices(column.name))
        if not there and column.name in _LATER:
            continue
        if there != 1:
            return f"column {column.name!r} is {'there twice' if there else 'missing'}"
        kind = found.field(column.name).type
        if kind != column.type:
            return f"column {column.name!r} holds {kind}, not {column.type}"
    return ""


def gap(name: str, found: "pa.Table") -> str:
    """Say which column of a table has no value somewhere although it must; nothing if there is none."""
    must = [column for column in found.column_names if column in TABLES[name] and column not in _EMPTY[name]]
    empty = [column for column in must if found.column(column).null_count]
    return f"column {empty[0]!r} has no value in some rows" if empty else ""


def fits(name: str, row: Any) -> bool:
    """Tell whether a line of a table that is still growing has its columns, and values where it must."""
    if not isinstance(row, dict) or not row.keys() >= TABLES[name].keys() - set(_LATER):
        return False
    return isinstance(row["round"], int) and not any(row[key] is None for key in row if key not in _EMPTY[name])
