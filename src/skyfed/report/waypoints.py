"""Flights for the real world: GeoJSON, KML and QGroundControl plans."""

import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np

from skyfed.errors import BadInputError
from skyfed.flight.fleet_plan import FleetPlan
from skyfed.types import IDLE, Floats

_EQUATOR = 6_378_137.0  # m, semi-major axis of WGS84
_FLATTENING = 1 / 298.257223563  # of WGS84
_MOST_LATITUDE = 85.0  # degrees; nearer a pole the series below, and east itself, stop being useful
_DECIMALS = 7  # of a degree: 11 mm, and what MAVLink carries

_SPEED = 5.0  # m/s, what QGroundControl assumes for a multicopter; for its estimate of the flight time only
_CRUISE = 15.0  # m/s, the same for a fixed wing
_WAYPOINT, _RETURN, _TAKEOFF = 16, 20, 22  # MAV_CMD_NAV_*
_FRAME_MISSION, _FRAME_RELATIVE = 2, 3  # MAV_FRAME: no coordinates; altitude above home
_PX4, _QUADROTOR = 12, 2  # MAV_AUTOPILOT, MAV_TYPE

Origin = tuple[float, float]


def to_wgs84(points: Floats, origin: Origin) -> Floats:
    """Turn local metres (…, 2), x east and y north of the origin, into latitude and longitude in degrees (…, 2).

    The plane touches the ellipsoid at origin (latitude, longitude). With the radii of curvature there, M along the
    meridian and N along the prime vertical, and terms to second order (meridians converge, parallels curve):

        latitude  = latitude_0  + y / M - x^2 tan(latitude_0) / (2 M N) - y^2 M' / (2 M^3)
        longitude = longitude_0 + x / (N cos(latitude_0)) * (1 + y tan(latitude_0) / N)

    where M' = dM / dlatitude. Accuracy against exact geocentric coordinates, up to 70 degrees of latitude: 0.1 mm
    within 1 km, 7 cm within 10 km; at 85 degrees 1.2 mm and 1.2 m. Metres are measured at the ellipsoid's height: on
    ground 1000 m above it a kilometre comes out 16 cm longer.
    """
    latitude, longitude = origin
    if not (abs(latitude) <= _MOST_LATITUDE and abs(longitude) <= 180):
        allowed = f"latitude within ±{_MOST_LATITUDE:g} degrees, longitude within ±180"
        raise BadInputError(f"field.origin = [{latitude}, {longitude}]; allowed for exported plans: {allowed}")
    squared = _FLATTENING * (2 - _FLATTENING)
    sine, tangent = math.sin(math.radians(latitude)), math.tan(math.radians(latitude))
    cosine = math.cos(math.radians(latitude))
    bend = 1 - squared * sine**2
    prime = _EQUATOR / math.sqrt(bend)
    meridian = prime * (1 - squared) / bend
    slope = 3 * meridian * squared * sine * cosine / bend
    x, y = points[..., 0], points[..., 1]
    north = y / meridian - x**2 * tangent / (2 * meridian * prime) - y**2 * slope / (2 * meridian**3)
    east = x / (prime * cosine) * (1 + y * tangent / prime)
    wrapped = (longitude + np.degrees(east) + 180) % 360 - 180
    return np.stack([latitude + np.degrees(north), wrapped], axis=-1)


def geojson(fleet: FleetPlan, origin: Origin, altitude: float, hold: float) -> str:
    """Write the fleet as one GeoJSON FeatureCollection: the station, and each vehicle's path and waypoints (RFC 7946).

    A path starts and ends at the station, as the vehicle does. Coordinates are longitude, latitude in degrees and
    altitude above the station in metres. A waypoint's class is null where the vehicle is over no disc.
    """
    (latitude, longitude), flights = _degrees(np.zeros(2), origin), _degrees(fleet.positions, origin)
    features = [_feature("Point", [longitude, latitude, 0.0], {"kind": "station"})]
    above_home = [longitude, latitude, altitude]
    for vehicle, flight in enumerate(flights):
        points = [[east, north, altitude] for north, east in flight]
        path = [above_home, *points, above_home]
        features.append(_feature("LineString", path, {"kind": "path", "vehicle": vehicle}))
        for t, point in enumerate(points):
            visit = {"kind": "waypoint", "vehicle": vehicle, "round": t, "class": _label(fleet, vehicle, t)}
            features.append(_feature("Point", point, {**visit, "hold_s": hold, "altitude_m": altitude}))
    return json.dumps({"type": "FeatureCollection", "features": features}, allow_nan=False)


def kml(fleet: FleetPlan, origin: Origin, altitude: float, hold: float) -> str:
    """Write the fleet as KML 2.2: the station, and one folder per vehicle with its path and waypoints above ground."""
    root = ET.Element("kml", xmlns="http://www.opengis.net/kml/2.2")
    document = ET.SubElement(root, "Document")
    ET.SubElement(document, "name").text = "skyfed flights"
    home, flights = _degrees(np.zeros(2), origin), _degrees(fleet.positions, origin)
    _placemark(document, "Station", {}, "Point", [home], 0.0)
    for vehicle, points in enumerate(flights):
        folder = ET.SubElement(document, "Folder")
        ET.SubElement(folder, "name").text = f"Vehicle {vehicle}"
        _placemark(folder, f"Path of vehicle {vehicle}", {}, "LineString", [home, *points, home], altitude)
        for t, point in enumerate(points):
            label = _label(fleet, vehicle, t)
            name = f"Round {t}: " + ("idle" if label is None else f"class {label}")
            data = {"vehicle": vehicle, "round": t, "hold_s": hold, "altitude_m": altitude}
            _placemark(folder, name, data if label is None else {**data, "class": label}, "Point", [point], altitude)
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="UTF-8", xml_declaration=True)
    return text.decode()


def qgc_plan(fleet: FleetPlan, vehicle: int, origin: Origin, altitude: float, hold: float) -> str:
    """Write one vehicle's flight as a QGroundControl plan: take off, hold at every round's position, return."""
    latitude, longitude = _degrees(np.zeros(2), origin)
    # null lets the autopilot choose the heading.
    steps = [(_TAKEOFF, _FRAME_RELATIVE, [0, 0, 0, None, latitude, longitude, altitude])]
    points = _degrees(fleet.positions[vehicle], origin)
    steps += [(_WAYPOINT, _FRAME_RELATIVE, [hold, 0, 0, None, *point, altitude]) for point in points]
    steps.append((_RETURN, _FRAME_MISSION, [0, 0, 0, 0, 0, 0, 0]))
    items = []
    for number, (command, frame, params) in enumerate(steps, start=1):
        item = {"type": "SimpleItem", "autoContinue": True, "command": command, "doJumpId": number, "frame": frame}
        if frame == _FRAME_RELATIVE:
            item |= {"Altitude": altitude, "AltitudeMode": 1, "AMSLAltAboveTerrain": None}  # 1: above home
        items.append({**item, "params": params})
    mission = {
        "version": 2,
        "firmwareType": _PX4,
        "vehicleType": _QUADROTOR,
        "globalPlanAltitudeMode": 1,
        "cruiseSpeed": _CRUISE,
        "hoverSpeed": _SPEED,
        "plannedHomePosition": [latitude, longitude, 0],
        "items": items,
    }
    plan = {
        "fileType": "Plan",
        "version": 1,
        "groundStation": "QGroundControl",
        "geoFence": {"circles": [], "polygons": [], "version": 2},
        "rallyPoints": {"points": [], "version": 2},
        "mission": mission,
    }
    return json.dumps(plan, indent=2, allow_nan=False)


def export_all(fleet: FleetPlan, folder: Path, origin: Origin, altitude: float, hold: float) -> list[Path]:
    """Write flights.geojson, flights.kml and a plan per vehicle (vehicle-000.plan) into a folder; returns the paths."""
    writers = {"flights.geojson": geojson, "flights.kml": kml}
    texts = {name: write(fleet, origin, altitude, hold) for name, write in writers.items()}
    for vehicle in range(fleet.vehicles):
        texts[f"vehicle-{vehicle:03d}.plan"] = qgc_plan(fleet, vehicle, origin, altitude, hold)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text + "\n", encoding="utf-8", newline="\n")
    return [folder / name for name in texts]


def _degrees(points: Floats, origin: Origin) -> Any:
    """Return rounded latitudes and longitudes of points (…, 2) as nested lists."""
    return np.round(to_wgs84(points, origin), _DECIMALS).tolist()


def _label(fleet: FleetPlan, vehicle: int, t: int) -> int | None:
    label = int(fleet.association[vehicle, t])
    return None if label == IDLE else label


def _feature(kind: str, coordinates: list[Any], properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Feature", "geometry": {"type": kind, "coordinates": coordinates}, "properties": properties}


def _placemark(
    parent: ET.Element, name: str, data: dict[str, float], geometry: str, points: list[list[float]], altitude: float
) -> None:
    placemark = ET.SubElement(parent, "Placemark")
    ET.SubElement(placemark, "name").text = name
    if data:
        extended = ET.SubElement(placemark, "ExtendedData")
        for key, number in data.items():
            ET.SubElement(ET.SubElement(extended, "Data", name=key), "value").text = str(number)
    shape = ET.SubElement(placemark, geometry)
    ET.SubElement(shape, "altitudeMode").text = "relativeToGround"
    places = [f"{longitude:.{_DECIMALS}f},{latitude:.{_DECIMALS}f},{altitude}" for latitude, longitude in points]
    ET.SubElement(shape, "coordinates").text = " ".join(places)
