"""A sample of FactCheXcker's table of endotracheal tubes, beside ReXrank's studies."""

import csv
import io

from tests.helpers.catalogue import picture, reports, write_json

HEAD = ("rid", "model", "object", "present", "measurement", "placement", "gt_present", "gt_measurement", "gt_placement")


def write_tubes(path, rows):
    """The table of updated reports: (rid, model, present, measurement, true presence, true measurement)."""
    stream = io.StringIO()
    table = csv.writer(stream, quoting=csv.QUOTE_ALL, lineterminator="\n")
    table.writerow([*HEAD, "measurement_diff"])
    for rid, model, present, length, due, right in rows:
        placed, rightly = ("correct" if there else "" for there in (present, due))
        apart = f"{abs(float(length) - float(right)):.2f}" if length and right else ""
        table.writerow([rid, model, "endotracheal_tube", present, length, placed, due, right, rightly, apart])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(stream.getvalue())


@reports(
    "factchexcker",
    cases=["50000001", "50000002", "50000003"],
    # 5 mm off; invented, for there is no tube; and a tube whose distance is not stated.
    replies={
        "50000001": "ETT ends 4 cm above the carina.",
        "50000002": "The endotracheal tube ends 3 cm above the carina.",
    },
    scores={"ett_carina_mae": 5, "ett_carina_invented": 1 / 2, "ett_carina_missing": 1 / 2},
    text=(
        "Age:50-60.Gender:M.Indication: Intubated.\nWrite the findings section of the report of this chest X-ray study."
    ),
    perfect=lambda case: "The endotracheal tube ends {} cm above the carina.".format(
        {"50000001": "3.5", "50000003": "6.25"}.get(case.id, "")
    ),
)
def factchexcker(root):
    """Rows of two models, of which the truth is the same; studies by their ids, paths that begin with a slash."""
    truth = {"50000001": (True, "3.5"), "50000002": (False, ""), "50000003": (True, "6.25")}
    rows = [(rid, model, False, "", *due) for model in ("CheXagent", "VLCI") for rid, due in truth.items()]
    write_tubes(root / "update-model-guided.csv", rows)
    studies = {}
    for number, rid in enumerate([*truth, "59999999"]):
        image = f"/p10/p1000000{number}/s{rid}/view.jpg"
        picture(root / "files" / image[1:], number)
        context = "Age:50-60.Gender:M.Indication: Intubated."
        studies[rid] = {"key_image_path": image, "context": context, "subject_id": f"1000000{number}"}
    write_json(root / "ReXRank_MIMICCXR_test.json", studies)
