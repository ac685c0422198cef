"""UPerNet: only the decoder learns, of convolutional and of transformer features."""

import pytest
import torch

from medimg_eval.errors import UsageError, UserError
from medimg_eval.models.segmentation.monai import MonaiSegmenter
from medimg_eval.models.segmentation.upernet import UPerNet

ENCODERS = {
    "stages": {"encoder": "resnet10t", "encoder_options": {"channels": [8, 8, 16, 16], "stem_width": 8}},
    "blocks": {
        "encoder": "vit_tiny_patch16_224",
        "encoder_options": {"embed_dim": 24, "depth": 4, "num_heads": 3, "patch_size": 8},
    },
}


def made(which, **settings):
    torch.manual_seed(0)
    return UPerNet(1, 2, (64, 64), **{**ENCODERS[which], "channels": 16, **settings})


def squares(count=6):
    """Grey noise with a bright square of 24 x 24, and where it is."""
    random = torch.Generator().manual_seed(0)
    pictures = torch.rand(count, 1, 64, 64, generator=random) * 0.3
    labels = torch.zeros(count, 1, 64, 64)
    for place in range(count):
        row, column = torch.randint(0, 40, (2,), generator=random).tolist()
        labels[place, :, row : row + 24, column : column + 24] = 1
    return pictures + labels * 0.6, labels


@pytest.mark.parametrize("which", ENCODERS)
def test_the_decoder_learns_and_the_encoder_stays(which):
    pictures, labels = squares()
    network = made(which).train()
    before = {name: tensor.clone() for name, tensor in network.encoder.state_dict().items()}
    optimiser = torch.optim.AdamW(network.parameters(), lr=3e-3)
    losses = []
    for _ in range(25):
        loss = torch.nn.functional.cross_entropy(network(pictures), labels[:, 0].long())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    assert all(torch.equal(before[name], tensor) for name, tensor in network.encoder.state_dict().items())
    assert not network.encoder.training
    found = network.eval()(pictures).argmax(1, keepdim=True)
    assert 2 * (found * labels).sum() / (found.sum() + labels.sum()) > 0.8


def test_a_transformer_gives_four_blocks_the_last_among_them():
    assert made("blocks")._indices() == [0, 1, 2, 3]
    deep = made("blocks", encoder_options={**ENCODERS["blocks"]["encoder_options"], "depth": 12})
    assert deep._indices() == [2, 5, 8, 11]
    maps = deep._maps(torch.zeros(1, 3, 64, 64))
    assert [one.shape[-1] for one in maps] == [32, 16, 8, 4]


def test_a_grey_picture_is_shown_as_three_equal_channels():
    network, (pictures, _) = made("stages").eval(), squares(2)
    torch.testing.assert_close(network(pictures), network(pictures.expand(-1, 3, -1, -1)))


def test_a_segmenter_makes_it_for_the_task_and_reads_it_again(tmp_path):
    from medimg_eval.case import Image, Prompt

    config = {"name": "UPerNet", "channels": 16, **ENCODERS["stages"]}
    pictures, _ = squares(1)
    prompt = Prompt("a", (Image(pictures[0].numpy(), torch.eye(4).numpy()),), {1: "square"})
    torch.manual_seed(1)
    first = MonaiSegmenter(network=config, spatial_dims=2)
    first.prepare(prompt.labels, lambda: prompt.image)
    torch.save(first.eval().network.state_dict(), tmp_path / "weights.pt")
    again = MonaiSegmenter(network=config, spatial_dims=2, checkpoint=str(tmp_path / "weights.pt"))
    again.prepare(prompt.labels, lambda: prompt.image)
    assert (again.eval().segment([prompt])[0] == first.segment([prompt])[0]).all()


def test_what_it_cannot_read_is_named():
    with pytest.raises(UsageError, match="1 or 3 channels, got 2"):
        UPerNet(2, 2, (64, 64))
    with pytest.raises(UsageError, match="channels is 12, expected a multiple of 8 from 16"):
        made("stages", channels=12)
    with pytest.raises(UserError, match="timm has no 'resnet10tt'"):
        made("stages", encoder="resnet10tt", encoder_options={})
