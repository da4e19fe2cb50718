"""Columns that a world fills in the tables of uploads, rounds and vehicles."""

from skyfed.columns import Column

VehicleRow = dict[str, float | int | bool | str | None]
UPLOAD_COLUMNS = (
    Column("modelled_seconds", "float", "seconds of training, modelled"),
    Column("modelled_energy", "float", "joules of training, modelled"),
    Column("send_seconds", "float", "seconds of sending, modelled"),
    Column("send_joules", "float", "joules of sending, modelled"),
    Column("rate", "float", "bits per second of the uplink, modelled"),
    Column("late", "float", "seconds after the deadline, modelled"),
)
ROUND_COLUMNS = (
    Column("mission_seconds", "float", "how long the round lasts on the mission clock", empty=True, since="0.2.0"),
    Column("clock", "float", "mission seconds at the end of the round", empty=True, since="0.2.0"),
    Column("joules", "float", "joules of all vehicles in the round, modelled", empty=True, since="0.2.0"),
)
_SPENT = {  # what a vehicle spends in a round, by the names of `Spending`
    "fly_seconds": "seconds of flying to the round's place, take-off included",
    "sense_seconds": "seconds of looking at the ground",
    "receive_seconds": "seconds of receiving what the station sends",
    "train_seconds": "seconds of training",
    "send_seconds": "seconds of sending the upload",
    "wait_seconds": "seconds of waiting for the end of the round",
    "home_seconds": "seconds of flying home and landing, where the vehicle goes home in this round",
    "fly_joules": "joules of flying, the way home included",
    "hover_joules": "joules of staying in the air at the round's place",
    "receive_joules": "joules of the radio while it receives",
    "train_joules": "joules of the computer while it trains",
    "send_joules": "joules of the radio while it sends",
}
VEHICLE_COLUMNS = (
    Column("round", "int", "the round"),
    Column("vehicle", "int", "the vehicle"),
    Column("present", "bool", "whether the station can reach it in this round"),
    Column("x", "float", "metres east of the station"),
    Column("y", "float", "metres north of the station"),
    Column("samples", "int", "training samples that it holds"),
    Column("flown", "float", "metres flown to this round's place"),
    Column("battery_left", "float", "joules left in the battery, modelled", empty=True),
    Column("status", "text", "flying, going home, or on the ground", empty=True, since="0.2.0"),
    Column("arrive", "float", "mission seconds at which it reached its place", empty=True, since="0.2.0"),
    Column("received_bytes", "int", "bytes of what the station sent it", empty=True, since="0.2.0"),
    Column("sent_bytes", "int", "bytes that it sent, with those sent again", empty=True, since="0.2.0"),
    *(Column(name, "float", f"{about}, modelled", empty=True, since="0.2.0") for name, about in _SPENT.items()),
)
