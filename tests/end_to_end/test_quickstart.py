"""The demo of the README: a fitted U-Net beside a Gaussian mixture, on the held-out hemisphere."""

import pandas as pd
import pytest

pytestmark = pytest.mark.slow


@pytest.mark.long
def test_the_fitted_unet_beats_the_gaussian_mixture_and_the_table_says_so(program, tmp_path):
    # A quarter of the demo's epochs at a higher rate, for the sake of CI.
    short = ["trainer.max_epochs=60", "fit.lr=0.006", "trainer.check_val_every_n_epoch=20", "model.augment=[]"]
    fitted = program("fit", "task=brain_tissue", "model=unet_small", "run=demo/unet", *short, timeout=600)
    assert fitted.returncode == 0, fitted.stderr
    unet = program("test", "task=brain_tissue", "model=unet_small", "model.checkpoint=demo/unet", "runs=demo")
    mixture = program("test", "task=brain_tissue", "model=gaussian_mixture", "runs=demo")
    assert (unet.returncode, mixture.returncode) == (0, 0), unet.stderr + mixture.stderr
    done = program("table", "runs=demo", "out=paper")
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(tmp_path / "paper" / "table.csv").set_index(["model", "metric"])
    assert set(table.index.get_level_values("metric")) == {"dice", "hd95", "nsd@1"}
    assert (table["n"] == 23).all()
    assert (table["failed"] == 0).all()
    assert ((table["low"] <= table["mean"]) & (table["mean"] <= table["high"])).all()
    means = table["mean"]
    assert means["U-Net (small)", "hd95"] < means["GaussianMixture", "hd95"]
    assert table["low"]["U-Net (small)", "dice"] > means["GaussianMixture", "dice"]  # 0.78 and 0.74
    assert r"\textbf{" in (tmp_path / "paper" / "table.tex").read_text()
