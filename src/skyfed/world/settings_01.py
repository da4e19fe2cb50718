"""Reads the table `cost` of version 0.1, whose settings are now in the tables `world` and `vehicle`."""

from typing import Any

from skyfed.world.links import UNLIMITED

_DEVICE = {"frequency": 1.5e9, "cycles_per_flop": 0.25, "capacitance": 1e-28}  # the computer of version 0.1
_MEMORY, _IDLE = 8 * 2**30, 0.0  # which it did not model
_AIRFRAME = ("blade_power", "induced_power", "tip_speed", "induced_velocity", "drag")
_RADIO = ("power", "circuit_power", "efficiency")
_CHANNEL = ("carrier", "noise", "los_a", "los_b", "loss_los", "loss_blocked")
_ANY_SNR = -300.0  # dB; every link of version 0.1 had a rate
_BANDWIDTH, _VEHICLES = 1e6, 10  # of one vehicle, and how many there were where a config did not say


def translate_costs(tree: dict[str, Any]) -> dict[str, Any]:
    """Return a tree of settings without the table `cost`, and otherwise as version 0.1 meant it.

    There, nobody kept to a speed, batteries were not enforced, psi followed the number of the round, and a visit
    brought samples by Eq. 6. What the tree sets itself comes first.
    """
    cost = tree.get("cost")
    if not isinstance(cost, dict):
        return tree
    cpu, flight, radio = (_table(cost, name) for name in ("cpu", "flight", "radio"))
    vehicles = tree.get("vehicles", _VEHICLES)
    channel = {name: radio[name] for name in _CHANNEL if name in radio}
    channel["bandwidth"] = radio.get("bandwidth", _BANDWIDTH) * vehicles if isinstance(vehicles, int) else _BANDWIDTH
    channel |= {"efficiency": 1.0, "most_bits": UNLIMITED, "least_snr_db": _ANY_SNR}
    if "noise_figure" in radio:
        channel["station_noise_figure"] = radio["noise_figure"]
    world = {name: cost[name] for name in ("t_train", "e_train", "deadline", "late") if name in cost}
    world |= {"battery": "ignore", "dwell": 0.0, "channel": channel}
    if "model" in cost:
        world["time"] = {"device": "mission"}.get(cost["model"], cost["model"])
    vehicle = {
        name: value for name, value in (("battery", cost.get("battery")), ("speed", flight.get("speed"))) if value
    }
    vehicle["airframe"] = {name: flight[name] for name in _AIRFRAME if name in flight}
    vehicle["radio"] = {name: radio[name] for name in _RADIO if name in radio}
    if all(isinstance(cpu.get(name, 0.0), int | float) for name in _DEVICE):
        vehicle["computer"] = _computer(**(_DEVICE | {name: cpu[name] for name in _DEVICE if name in cpu}))
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


def _table(cost: dict[str, Any], name: str) -> dict[str, Any]:
    table = cost.get(name, {})
    return table if isinstance(table, dict) else {}


def _computer(frequency: float, cycles_per_flop: float, capacitance: float) -> dict[str, Any]:
    """Return the same computer by its watts and speed: joules = C cycles f^2, seconds = cycles / f."""
    watts = capacitance * frequency**3
    return {"name": "0.1", "watts": watts, "idle_watts": _IDLE, "flops": frequency / cycles_per_flop, "memory": _MEMORY}
