"""Exported flights: coordinates against geocentric ones, and the shape of each format."""

import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyfed.errors import BadInputError
from skyfed.flight.fleet_plan import FleetPlan
from skyfed.report.waypoints import export_all, geojson, kml, qgc_plan, to_wgs84
from skyfed.types import IDLE, Floats

ORIGIN = (47.3977419, 8.5455938)
KML = "{http://www.opengis.net/kml/2.2}"


def hand_made_fleet() -> FleetPlan:
    """Two vehicles, two classes, three rounds; the second vehicle is idle in round 1."""
    positions = np.array([[[100.0, 0.0], [0.0, 200.0], [-300.0, -50.0]], [[400.0, 400.0], [1.5, -2.5], [-7.0, 8.0]]])
    discs = np.array([[[100.0, 0.0], [0.0, 200.0]], [[400.0, 400.0], [-7.0, 8.0]]])
    return FleetPlan(
        positions=positions, association=np.array([[0, 1, 0], [0, IDLE, 1]]), centres=discs,
        radii=np.full((2, 2), 30.0), true_centres=discs, true_radii=np.full((2, 2), 30.0), psi=np.full((2, 2, 3), 0.5),
        imax=np.full((2, 2, 1), 2), dmin=np.array(5.0), vmax=np.array(np.inf), epsilon=np.array(1e-6),
        region=np.array([1000.0, 1000.0]), windows=np.array("paper"), method=np.array("exact"), objective=np.zeros(2),
        bound=np.zeros(2), seconds=np.zeros(2), note=np.array(["", ""]),
    )  # fmt: skip


def geocentric(latitude: Floats, longitude: Floats) -> Floats:
    """Earth-centred metres of points on the WGS84 ellipsoid, from its two half axes."""
    a, b = 6378137.0, 6356752.314245179
    phi, lam = np.radians(latitude), np.radians(longitude)
    normal = a**2 / np.hypot(a * np.cos(phi), b * np.sin(phi))
    flat = normal * np.cos(phi)
    return np.stack([flat * np.cos(lam), flat * np.sin(lam), b**2 / a**2 * normal * np.sin(phi)], axis=-1)


def east_north(degrees: Floats, origin: tuple[float, float]) -> Floats:
    """Metres east and north of the origin, by rotating geocentric differences into its horizon."""
    phi, lam = math.radians(origin[0]), math.radians(origin[1])
    away = geocentric(degrees[..., 0], degrees[..., 1]) - geocentric(np.array(origin[0]), np.array(origin[1]))
    east = np.array([-math.sin(lam), math.cos(lam), 0.0])
    north = np.array([-math.sin(phi) * math.cos(lam), -math.sin(phi) * math.sin(lam), math.cos(phi)])
    return np.stack([away @ east, away @ north], axis=-1)


@given(
    st.tuples(st.floats(-85, 85), st.floats(-180, 180)),
    st.tuples(st.floats(-1000, 1000), st.floats(-1000, 1000)),
)
def test_a_kilometre_is_right_to_a_centimetre_anywhere(origin: tuple[float, float], place: tuple[float, float]) -> None:
    point = np.array(place)
    error = east_north(to_wgs84(point, origin), origin) - point
    assert np.hypot(*error) < 0.01


def test_accuracy_is_what_the_docstring_says() -> None:
    ring = np.array([[math.cos(k / 9), math.sin(k / 9)] for k in range(57)])
    for latitude, near, far in ((0.0, 1e-4, 0.07), (47.4, 1e-4, 0.07), (-70.0, 1e-4, 0.07), (85.0, 1.2e-3, 1.2)):
        for points, bar in ((1e3 * ring, near), (1e4 * ring, far)):
            error = east_north(to_wgs84(points, (latitude, 11.0)), (latitude, 11.0)) - points
            assert np.hypot(*error.T).max() < bar


def test_x_is_east_y_is_north_and_the_date_line_wraps() -> None:
    latitude, longitude = to_wgs84(np.array([[1000.0, 0.0], [0.0, 1000.0]]), (10.0, 179.999)).T
    assert -180 <= longitude[0] < -179.9
    assert latitude[1] > 10.008
    assert longitude[1] == pytest.approx(179.999)


@pytest.mark.parametrize("origin", [(90.0, 0.0), (-86.0, 0.0), (0.0, 181.0), (math.nan, 0.0)])
def test_origins_that_cannot_be_used_are_refused(origin: tuple[float, float]) -> None:
    with pytest.raises(BadInputError, match="allowed"):
        to_wgs84(np.zeros(2), origin)


def test_geojson_holds_station_paths_and_waypoints() -> None:
    fleet = hand_made_fleet()
    collection = json.loads(geojson(fleet, ORIGIN, altitude=50.0, hold=10.0))
    assert collection["type"] == "FeatureCollection"
    kinds = [feature["properties"]["kind"] for feature in collection["features"]]
    assert kinds == ["station"] + 2 * ["path", *3 * ["waypoint"]]
    station, path = collection["features"][:2]
    assert station["geometry"] == {"type": "Point", "coordinates": [ORIGIN[1], ORIGIN[0], 0.0]}
    assert path["geometry"]["type"] == "LineString"
    waypoints = [f for f in collection["features"] if f["properties"]["kind"] == "waypoint"]
    above_station = [ORIGIN[1], ORIGIN[0], 50.0]
    first = [f["geometry"]["coordinates"] for f in waypoints[:3]]
    assert path["geometry"]["coordinates"] == [above_station, *first, above_station]
    idle = waypoints[4]["properties"]
    assert idle == {"kind": "waypoint", "vehicle": 1, "round": 1, "class": None, "hold_s": 10.0, "altitude_m": 50.0}
    assert [f["properties"]["class"] for f in waypoints] == [0, 1, 0, 0, None, 1]
    for feature, position in zip(waypoints, fleet.positions.reshape(-1, 2), strict=True):
        longitude, latitude, _ = feature["geometry"]["coordinates"]
        assert (longitude, latitude) == (round(longitude, 7), round(latitude, 7))
        np.testing.assert_allclose(east_north(np.array([latitude, longitude]), ORIGIN), position, atol=0.01)


def test_kml_is_well_formed_with_a_folder_a_vehicle() -> None:
    text = kml(hand_made_fleet(), ORIGIN, altitude=50.0, hold=10.0)
    assert text.startswith("<?xml version='1.0' encoding='UTF-8'?>")
    root = ET.fromstring(text)
    assert root.tag == f"{KML}kml"
    folders = root.findall(f"{KML}Document/{KML}Folder")
    assert [folder.findtext(f"{KML}name") for folder in folders] == ["Vehicle 0", "Vehicle 1"]
    for folder in folders:
        marks = folder.findall(f"{KML}Placemark")
        assert len(marks) == 1 + 3
        assert {mode.text for mode in folder.iter(f"{KML}altitudeMode")} == {"relativeToGround"}
        line = marks[0].findtext(f"{KML}LineString/{KML}coordinates", "").split()
        points = [mark.findtext(f"{KML}Point/{KML}coordinates") for mark in marks[1:]]
        assert line == ["8.5455938,47.3977419,50.0", *points, "8.5455938,47.3977419,50.0"]
    idle = folders[1].findall(f"{KML}Placemark")[2]
    assert idle.findtext(f"{KML}name") == "Round 1: idle"
    data = {entry.get("name"): entry.findtext(f"{KML}value") for entry in idle.iter(f"{KML}Data")}
    assert data == {"vehicle": "1", "round": "1", "hold_s": "10.0", "altitude_m": "50.0"}


def test_qgc_plan_takes_off_holds_in_every_round_and_returns() -> None:
    fleet = hand_made_fleet()
    plan = json.loads(qgc_plan(fleet, 1, ORIGIN, altitude=60.0, hold=12.5))
    assert (plan["fileType"], plan["version"], plan["groundStation"]) == ("Plan", 1, "QGroundControl")
    assert plan["geoFence"] == {"circles": [], "polygons": [], "version": 2}
    assert plan["rallyPoints"] == {"points": [], "version": 2}
    mission = plan["mission"]
    assert mission["version"] == 2
    assert (mission["firmwareType"], mission["vehicleType"]) == (12, 2)
    assert mission["plannedHomePosition"] == [*ORIGIN, 0]
    assert mission["cruiseSpeed"] > 0
    assert mission["hoverSpeed"] > 0
    items = mission["items"]
    assert [item["command"] for item in items] == [22, *fleet.rounds * [16], 20]
    assert [item["doJumpId"] for item in items] == list(range(1, fleet.rounds + 3))
    assert {item["type"] for item in items} == {"SimpleItem"}
    assert all(item["autoContinue"] and len(item["params"]) == 7 for item in items)
    assert items[0]["params"] == [0, 0, 0, None, *ORIGIN, 60.0]
    for item, position in zip(items[1:-1], fleet.positions[1], strict=True):
        assert item["frame"] == 3
        assert item["Altitude"] == 60.0
        assert item["params"][:4] == [12.5, 0, 0, None]
        assert item["params"][6] == 60.0
        np.testing.assert_allclose(east_north(np.array(item["params"][4:6]), ORIGIN), position, atol=0.01)


def test_export_all_writes_every_file_the_same_each_time(tmp_path: Path) -> None:
    names = ["flights.geojson", "flights.kml", "vehicle-000.plan", "vehicle-001.plan"]
    paths = export_all(hand_made_fleet(), tmp_path / "new" / "folder", ORIGIN, altitude=50.0, hold=10.0)
    assert [path.name for path in paths] == names
    before = [path.read_bytes() for path in paths]
    again = export_all(hand_made_fleet(), tmp_path / "new" / "folder", ORIGIN, altitude=50.0, hold=10.0)
    assert [path.read_bytes() for path in again] == before
    assert json.loads(before[3])["mission"]["items"][2]["params"][0] == 10.0
