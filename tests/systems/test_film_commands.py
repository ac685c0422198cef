"""Commands of films, poses and clips, over files in their authors' form."""

import json

import pytest

from tests.end_to_end.test_film_systems import write_answers
from tests.helpers import film_sets
from tests.helpers.benchmark_files import task
from tests.helpers.system_chains import QUICK, Chains, any_number

pytestmark = pytest.mark.long

CHAINS = Chains()


def write(folder, writer, name):
    """Files of a set; words that name them, and let it go on with fewer cases than are published."""
    (folder / "data").mkdir()
    writer(folder / "data")
    return [f"task.layout.root={folder}/data", *any_number(name)]


def write_frames(folder, writer, name):
    words = write(folder, writer, name)
    columns = write_answers(task(name, folder / "data"), folder / "LABELS")
    return [*words, f"model.columns={json.dumps(columns)}"]


@CHAINS.add("test task=pitvis model=precomputed_frames model.root=LABELS")
def _pitvis(folder, request):
    return write_frames(folder, film_sets.write_pitvis, "pitvis")


@CHAINS.add("test task=bleedorigin_onset model=precomputed_frames model.root=LABELS")
def _onset(folder, request):
    return write_frames(folder, film_sets.write_bleedorigin, "bleedorigin_onset")


@CHAINS.add("test task=bleedorigin_points model=precomputed_points model.root=POINTS")
def _points(folder, request):
    (folder / "POINTS").mkdir()
    for frame, place in enumerate(("", "5,63\n", "6,203\n")):  # none in the first, where nothing bleeds
        (folder / f"POINTS/esd1-{frame:06d}.csv").write_text(f"x,y\n{place}")
    words = write(folder, film_sets.write_bleedorigin, "bleedorigin_points")
    return [*words, "model.columns=[x,y]", "model.space=voxel", "model.score=''"]


@CHAINS.add(
    "fit task=scoliosis1k_pose model=pose_classifier",
    "test task=scoliosis1k_pose model=pose_classifier model.checkpoint=RUN",
)
def _scoliosis(folder, request):
    words = [*write(folder, film_sets.write_scoliosis, "scoliosis1k_pose"), *QUICK, "task.metrics=[top1_accuracy]"]
    return [[*words, "model.epochs=1", "run=RUN"], words]


@CHAINS.add(
    "fit task=strokevision_poses model=pose_classifier",
    "test task=strokevision_poses model=pose_classifier model.checkpoint=RUN",
)
def _strokevision(folder, request):
    words = [*write(folder, film_sets.write_strokevision, "strokevision_poses"), *QUICK, "task.metrics=[top1_accuracy]"]
    table = folder / "data/clips.csv"
    table.write_text(table.read_text() + "3,s03,grasp,tune,keypoints/1.npz\n")
    return [[*words, "model.epochs=1", "run=RUN"], words]


@CHAINS.add("test task=strokevision_clips model=clip_classifier model.encoder=VIDEOMAE")
def _clips(folder, request):
    words = write(folder, film_sets.write_strokevision_clips, "strokevision_clips")
    transformers = pytest.importorskip("transformers")
    names = dict(enumerate(task("strokevision_clips", folder / "data").classes))
    sizes = {"image_size": 16, "patch_size": 8, "num_frames": 4, "tubelet_size": 2, "hidden_size": 8}
    layers = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "id2label": names}
    encoder = transformers.VideoMAEConfig(**sizes, **layers)
    transformers.VideoMAEForVideoClassification(encoder).save_pretrained(folder / "VIDEOMAE")
    return [*words, *QUICK, "task.metrics=[top1_accuracy]"]


@pytest.mark.parametrize("lines", CHAINS, ids=CHAINS.names)
def test_commands_run_on_files_of_their_authors_form(lines, run_chain):
    run_chain(CHAINS, lines)
