"""Files of annotations, read and written."""

from __future__ import annotations

import gzip
import json
import math
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import CaseError
from medimg_eval.imaging.annotations.drawing import Annotation, Kind
from medimg_eval.system import whole

AREAS = {"polygon": "area", "spline": "area", "rectangle": "area", "polyline": "line", "measurement": "line"}
"""Kind of each of ASAP's types, which fills a spline through its points; dots and sets of them are points."""

REGIONS = {"0": "area", "1": "area", "3": "line", "4": "line", "5": "points"}
"""Kind of each of ImageScope's types of regions; an ellipse (2) states its box."""

ELLIPSE = 64
"""Corners of the polygon that stands for an ellipse."""


def read_annotations(path: str | Path) -> list[Annotation]:
    """Reads what is drawn on a slide.

    Args:
        path: GeoJSON as QuPath exports it (a collection, a list or one feature; also `.gz`), or XML of ASAP, or of
            Aperio ImageScope, whose class is the first attribute of the annotation, or else its name.

    Returns:
        In the order of the file.

    Raises:
        CaseError: the file is missing or damaged, or holds what is not understood; the message names it.
    """
    path = Path(path)
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = data.decode("utf-8-sig")
    except FileNotFoundError as error:
        raise CaseError(f"{path}: no such file") from error
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise CaseError(f"{path}: cannot be read as text ({error}); copy or export it again") from error
    return _from_xml(path, text) if text.lstrip().startswith("<") else _from_geojson(path, text)


def write_annotations(path: str | Path, annotations: Sequence[Annotation], *, holes: str = "") -> None:
    """Writes drawn annotations of a slide, atomically.

    Args:
        path: ends in `.geojson` or `.json` for QuPath, or in `.xml` for ASAP; its folder exists.
        annotations: what is written, in this order.
        holes: for ASAP, which knows no holes: the group that they are written as, to be drawn later as label 0.

    Raises:
        CaseError: another ending, or holes in a file of ASAP that nothing names a group for.
    """
    path = Path(path)
    if path.suffix in (".geojson", ".json"):
        content = {
            "type": "FeatureCollection",
            "features": [_annotation_feature(annotation) for annotation in annotations],
        }
        text = json.dumps(content, allow_nan=False)
    elif path.suffix == ".xml":
        text = _asap_text(path, annotations, holes)
    else:
        raise CaseError(f"{path}: annotations are written as .geojson, .json (QuPath) or .xml (ASAP)")
    with whole(path) as partial:
        partial.write_text(text + "\n", encoding="utf-8")


def _from_geojson(path: Path, text: str) -> list[Annotation]:
    with CaseError.about(path, "is neither GeoJSON nor XML", ValueError):
        content = json.loads(text)
    if isinstance(content, dict):
        content = content.get("features", [content])
    if not isinstance(content, list):
        raise CaseError(f"{path}: expected GeoJSON features, got {type(content).__name__}")
    annotations = []
    for number, feature in enumerate(content, start=1):
        try:
            annotations.append(_read_annotation(feature))
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise CaseError(f"{path}, feature {number}: is not understood ({type(error).__name__}: {error})") from error
    return annotations


def _read_annotation(feature: Mapping[str, Any]) -> Annotation:
    properties = feature.get("properties") or {}
    kind, parts = _read_geometry(feature["geometry"])
    measured = properties.get("measurements") or {}
    if isinstance(measured, list):  # before QuPath 0.4
        measured = {measurement["name"]: measurement["value"] for measurement in measured}
    values = {str(name): float(value) for name, value in measured.items() if isinstance(value, int | float)}
    return Annotation(_class_name(properties.get("classification")), kind, parts, values, str(feature.get("id") or ""))


def _class_name(said: Any) -> str:
    """Class name, joining several as QuPath 0.6 does."""
    if isinstance(said, Mapping):
        return ": ".join(map(str, said["names"])) if "names" in said else str(said.get("name") or "")
    return str(said or "")


def _read_geometry(said: Mapping[str, Any]) -> tuple[Kind, tuple[tuple[Array, ...], ...]]:
    of, at = str(said["type"]), cast("list[Any]", said.get("coordinates"))
    if of == "Polygon":
        return "area", (tuple(_read_ring(ring) for ring in at),)
    if of == "MultiPolygon":
        return "area", tuple(tuple(_read_ring(ring) for ring in polygon) for polygon in at)
    if of in ("LineString", "MultiLineString"):
        return "line", tuple((_read_points(line),) for line in ([at] if of == "LineString" else at))
    if of in ("Point", "MultiPoint"):
        return "points", ((_read_points([at] if of == "Point" else at),),)
    raise ValueError(f"geometry {of!r}; expected polygons, lines or points")


def _read_ring(at: Sequence[Sequence[float]]) -> Array:
    """Reads a closed ring, without the point that closes it."""
    ring = _read_points(at)
    ring = ring[:-1] if len(ring) > 1 and np.array_equal(ring[0], ring[-1]) else ring
    if len(ring) < 3:
        raise ValueError(f"an outline of {len(ring)} points")
    return ring


def _read_points(at: Sequence[Sequence[Any]]) -> Array:
    points = np.array([[float(point[0]), float(point[1])] for point in at], np.float64).reshape(-1, 2)
    if not np.isfinite(points).all():
        raise ValueError("coordinates that are not finite")
    return points


def _annotation_feature(one: Annotation) -> dict[str, Any]:
    if one.kind == "area":
        polygons = [[[*ring.tolist(), ring[0].tolist()] for ring in polygon] for polygon in one.parts]
        geometry = ("Polygon", polygons[0]) if len(polygons) == 1 else ("MultiPolygon", polygons)
    elif one.kind == "line":
        lines = [part[0].tolist() for part in one.parts]
        geometry = ("LineString", lines[0]) if len(lines) == 1 else ("MultiLineString", lines)
    else:
        points = [point for part in one.parts for ring in part for point in ring.tolist()]
        geometry = ("Point", points[0]) if len(points) == 1 else ("MultiPoint", points)
    properties: dict[str, Any] = {"objectType": "annotation"}
    properties |= {"classification": {"name": one.name}} if one.name else {}
    properties |= {"measurements": dict(one.values)} if one.values else {}
    named = {"id": one.id} if one.id else {}
    shape = {"type": geometry[0], "coordinates": geometry[1]}
    return {"type": "Feature", **named, "geometry": shape, "properties": properties}


def _from_xml(path: Path, text: str) -> list[Annotation]:
    if "<!ENTITY" in text:
        raise CaseError(f"{path}: declares entities, which no program for slides writes; export it again")
    with CaseError.about(path, "is no XML", ET.ParseError, mend="export it again"):
        root = ET.fromstring(text)  # noqa: S314 - entities are refused above
    if root.tag not in ("ASAP_Annotations", "Annotations"):
        raise CaseError(f"{path}: holds <{root.tag}>, expected ASAP's <ASAP_Annotations> or Aperio's <Annotations>")
    try:
        if root.tag == "Annotations":
            return [region for element in root.iter("Annotation") for region in _read_regions(element)]
        return [_asap_annotation(element) for element in root.iter("Annotation")]
    except (KeyError, ValueError) as error:
        raise CaseError(f"{path}: an annotation is not understood ({type(error).__name__}: {error})") from error


def _asap_annotation(one: ET.Element) -> Annotation:
    ordered = sorted(one.iter("Coordinate"), key=lambda corner: float(corner.attrib.get("Order", 0)))
    points = _read_points([(corner.attrib["X"], corner.attrib["Y"]) for corner in ordered])
    group = one.attrib.get("PartOfGroup", "None")
    return _of_kind(
        AREAS.get(one.attrib["Type"].lower(), "points"),
        points,
        "" if group == "None" else group,
        one.attrib.get("Name", ""),
    )


def _read_regions(one: ET.Element) -> list[Annotation]:
    attribute = one.find("Attributes/Attribute")
    name = (attribute.attrib.get("Name", "") if attribute is not None else "") or one.attrib.get("Name", "")
    annotations = []
    for region in one.iter("Region"):
        if region.attrib.get("NegativeROA", "0") == "1":
            raise ValueError("a negative region, which no label can be given")
        points = _read_points([(corner.attrib["X"], corner.attrib["Y"]) for corner in region.iter("Vertex")])
        type_ = region.attrib.get("Type", "0")
        if type_ == "2":
            points = _ellipse_corners(points)
        annotations.append(_of_kind(REGIONS.get(type_, "area"), points, name, region.attrib.get("Id", "")))
    return annotations


def _ellipse_corners(box: Array) -> Array:
    centre, radii = (box.min(0) + box.max(0)) / 2, (box.max(0) - box.min(0)) / 2
    angles = np.arange(ELLIPSE) * (2 * math.pi / ELLIPSE)
    corners: Array = centre + radii * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return corners


def _of_kind(kind: str, points: Array, name: str, id_: str) -> Annotation:
    if kind == "area":
        return Annotation(name, "area", ((_read_ring(points.tolist()),),), id=id_)
    return Annotation(name, "line" if kind == "line" else "points", ((points,),), id=id_)


def _asap_text(path: Path, annotations: Sequence[Annotation], holes: str) -> str:
    root = ET.Element("ASAP_Annotations")
    listed, groups = ET.SubElement(root, "Annotations"), ET.SubElement(root, "AnnotationGroups")
    for annotation in annotations:
        type_ = {"area": "Polygon", "line": "PolyLine", "points": "PointSet"}[annotation.kind]
        for rings in annotation.parts:
            if len(rings) > 1 and not holes:
                raise CaseError(f"{path}: ASAP knows no holes; name the group they are written as by holes='exclusion'")
            for index, ring in enumerate(rings):
                group = holes if index else annotation.name
                attributes = {
                    "Name": annotation.id or f"Annotation {len(listed)}",
                    "Type": type_,
                    "PartOfGroup": group or "None",
                }
                corners = ET.SubElement(ET.SubElement(listed, "Annotation", attributes, Color="#F4FA58"), "Coordinates")
                for order, (x, y) in enumerate(ring.tolist()):
                    ET.SubElement(corners, "Coordinate", Order=str(order), X=repr(x), Y=repr(y))
    for group in dict.fromkeys(element.attrib["PartOfGroup"] for element in listed):
        if group != "None":
            ET.SubElement(groups, "Group", Name=group, PartOfGroup="None", Color="#F4FA58")
    return ET.tostring(root, encoding="unicode", xml_declaration=True)
