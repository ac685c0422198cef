"""Structured findings as CSV, a similarity of texts, and observations and attributes of reports."""

from pathlib import Path

import numpy as np

for name, where in (("reference.csv", "left base"), ("predicted.csv", "left lung")):
    Path(name).write_text(f"study_id,entity,dx_status,location\ns1,effusion,positive,{where}\ns2,edema,positive,\n")


def similarity(texts, others):
    return np.array([[float(one.split()[:1] == other.split()[:1]) for other in others] for one in texts])


observations = [{"Edema", "Effusion"}, {"Edema"}, {"Nodule"}]
reference_attributes = [{"mild", "left"}, {"mild", "left", "base"}, {"small"}]
attributes = [{"mild"}, {"mild", "left"}, {"large"}]
