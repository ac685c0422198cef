"""A model of volumes that gives the same answer to everything, for runs that hand volumes over whole."""

from medimg_eval.models import VolumeModel


class SaysA(VolumeModel):
    """Answers `A`, once it has been given an array of the shape of RadFM's."""

    uses_torch = False
    convention = "radfm"

    def answer(self, volumes, prompt, decoding):
        assert all(volume.shape[:3] == (3, 512, 512) for volume in volumes)
        return "A" if volumes else "no volume"
