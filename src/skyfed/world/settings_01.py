"""Reads the table `cost` of version 0.1, whose settings are now in the tables `world` and `vehicle`."""

from typing import Any

from skyfed.errors import BadInputError, one_line
from skyfed.world.links import UNLIMITED

_DEVICE = {"frequency": 1.5e9, "cycles_per_flop": 0.25, "capacitance": 1e-28}  # the computer of version 0.1
_MEMORY, _IDLE = 8 * 2**30, 0.0  # which it did not model
_AIRFRAME = ("blade_power", "induced_power", "tip_speed", "induced_velocity", "drag")
_RADIO = ("power", "circuit_power", "efficiency")
_CHANNEL = ("carrier", "noise", "los_a", "los_b", "loss_los", "loss_blocked")
_ANY_SNR = -300.0  # dB; every link of version 0.1 had a rate
_KNOWN = {  # the settings of each table
    "cost": ("model", "t_train", "e_train", "deadline", "late", "battery", "cpu", "flight", "radio"),
    "cost.cpu": tuple(_DEVICE),
    "cost.flight": ("speed", *_AIRFRAME),
    "cost.radio": ("bandwidth", "noise_figure", *_RADIO, *_CHANNEL),
}
_BANDWIDTH, _VEHICLES = 1e6, 10  # of one vehicle, and how many there were where a config did not say
_MANY = 10**6  # vehicles: more than any config may have


def translate_costs(tree: dict[str, Any]) -> dict[str, Any]:
    """Return a tree of settings without the table `cost`, and otherwise as version 0.1 meant it.

    There, nobody kept to a speed, batteries were not enforced, psi followed the number of the round, and a visit
    brought samples by Eq. 6. What the tree sets itself comes first.
    """
    cost = tree.get("cost")
    if not isinstance(cost, dict):
        return tree
    _refuse_unknown(cost)
    cpu, flight, radio = (cost.get(name, {}) for name in ("cpu", "flight", "radio"))
    given = tree.get("vehicles", _VEHICLES)
    vehicles = given if isinstance(given, int) and 0 < given < _MANY else 1  # which is refused for itself
    channel = {name: radio[name] for name in _CHANNEL if name in radio}
    channel["bandwidth"] = radio.get("bandwidth", _BANDWIDTH) * vehicles
    channel |= {"efficiency": 1.0, "most_bits": UNLIMITED, "least_snr_db": _ANY_SNR}
    if "noise_figure" in radio:
        channel["station_noise_figure"] = radio["noise_figure"]
    world = {name: cost[name] for name in ("t_train", "e_train", "deadline", "late") if name in cost}
    world |= {"battery": "ignore", "dwell": 0.0, "channel": channel}
    if "model" in cost:
        world["time"] = "mission" if cost["model"] == "device" else cost["model"]
    vehicle = {name: table[name] for name, table in (("battery", cost), ("speed", flight)) if name in table}
    vehicle["airframe"] = {name: flight[name] for name in _AIRFRAME if name in flight}
    vehicle["radio"] = {name: radio[name] for name in _RADIO if name in radio}
    vehicle["computer"] = _computer(**(_DEVICE | cpu))
    before = {
        "world": world,
        "vehicle": vehicle,
        "flight": {"vmax": "unlimited"},
        "field": {"follows": "rounds"},
        "sensing": {"model": "eq6"},
    }
    rest = {name: value for name, value in tree.items() if name != "cost"}
    for name, table in before.items():
        own = rest.get(name, {})
        rest[name] = {**table, **own} if isinstance(own, dict) else own
    return rest


def _refuse_unknown(cost: dict[str, Any]) -> None:
    """Raise where there is a setting that version 0.1 did not have, or no number where one is reckoned with here."""
    tables = {place: cost if place == "cost" else cost.get(place.removeprefix("cost."), {}) for place in _KNOWN}
    for place, table in tables.items():
        if not isinstance(table, dict):
            raise BadInputError(f"{place} = {one_line(str(table))}: must be a table")
        for name in table:
            if name not in _KNOWN[place]:
                key = one_line(f"{place}.{name}")
                raise BadInputError(f"{key} is not a setting; allowed in [{place}]: {', '.join(_KNOWN[place])}")
    for place, names in (("cost.cpu", tuple(_DEVICE)), ("cost.radio", ("bandwidth",))):
        for name in names:
            value = tables[place].get(name, 0.0)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise BadInputError(f"{place}.{name} = {one_line(str(value))}: must be a number")


def _computer(frequency: float, cycles_per_flop: float, capacitance: float) -> dict[str, Any]:
    """Return the same computer by its watts and speed: joules = C cycles f^2, seconds = cycles / f."""
    try:
        watts, flops = float(capacitance * frequency**3), float(frequency / cycles_per_flop)
    except ArithmeticError:
        raise BadInputError("cost.cpu: allowed: values that give a finite time and energy of a round") from None
    return {"name": "0.1", "watts": watts, "idle_watts": _IDLE, "flops": flops, "memory": _MEMORY}
