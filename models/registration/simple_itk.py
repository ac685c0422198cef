"""Registration by SimpleITK: rigid, affine, B-splines, and diffeomorphic demons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from medimg_eval.case import Alignment, Array, Geometry, Image, Prompts
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.models.base import Registrar

if TYPE_CHECKING:
    import SimpleITK as sitk  # noqa: N813

Method = Literal["rigid", "affine", "bspline", "demons"]


class SimpleItkRegistration(Registrar):
    """Registers volumes by their grey values, the same from run to run.

    Rigid and affine maps maximise Mattes' mutual information over a pyramid of three resolutions, from centres that lie
    on each other. B-splines go on from the affine map. Demons, which need both images to have like grey values, go on
    from the rigid one, after a match of histograms.

    Args:
        method: `rigid`, `affine`, `bspline` or `demons`.
        iterations: at each resolution, at most; of demons in all.
        share: of voxels that the mutual information is estimated from, 0 to 1.
        grid: control points of B-splines along each axis.
        smoothing: of the demons' field after each step, in voxels.
        both: whether to register in the other direction as well, which `inverse_consistency` compares.
        seed: of the voxels that are drawn.
    """

    uses_torch = False
    preferred_batch = 1

    def __init__(
        self,
        method: Method = "rigid",
        iterations: int = 100,
        share: float = 0.2,
        grid: int = 6,
        smoothing: float = 1.5,
        both: bool = False,
        seed: int = 1,
    ) -> None:
        UsageError.refuse_invalid("method of registration", get_args(Method), method)
        self.method, self.iterations, self.share = method, iterations, share
        self.grid, self.smoothing, self.both, self.seed = grid, smoothing, both, seed

    def register(self, prompts: Prompts) -> Sequence[Alignment]:
        """Returns displacements; raises CaseError for pictures, and where SimpleITK gives up."""
        return [self._registered(*prompt.images) for prompt in prompts]

    def _registered(self, fixed: Image, moving: Image) -> Alignment:
        there = self._field(fixed, moving)
        return Alignment(there, self._field(moving, fixed) if self.both else None)

    def _field(self, fixed: Image, moving: Image) -> Array:
        import SimpleITK as sitk  # noqa: N813

        if len(fixed.geometry.shape) != 3:
            raise CaseError(f"registers volumes, got images of shape {fixed.shape}")
        still, moved = (_grey_image(image) for image in (fixed, moving))
        with CaseError.about("SimpleITK", "could not register the pair", RuntimeError):
            transform = self._transform(still, moved)
            field = sitk.TransformToDisplacementField(
                transform, sitk.sitkVectorFloat64, still.GetSize(), still.GetOrigin(), still.GetSpacing(),
                still.GetDirection(),
            )  # fmt: skip
        lps = sitk.GetArrayFromImage(field).transpose(3, 2, 1, 0)
        return displacement_in_voxels(lps * np.reshape((-1, -1, 1), (3, 1, 1, 1)), fixed.geometry, moving.geometry)

    def _transform(self, fixed: sitk.Image, moving: sitk.Image) -> sitk.Transform:
        import SimpleITK as sitk  # noqa: N813

        start = sitk.CenteredTransformInitializer(
            fixed, moving, sitk.Euler3DTransform(), sitk.CenteredTransformInitializerFilter.GEOMETRY
        )
        rigid = self._linear(fixed, moving, start)
        if self.method == "rigid":
            return rigid
        if self.method == "demons":
            return self._demons(fixed, moving, rigid)
        wide = sitk.AffineTransform(3)
        euler = sitk.Euler3DTransform(rigid)
        wide.SetMatrix(euler.GetMatrix())
        wide.SetTranslation(euler.GetTranslation())
        wide.SetCenter(euler.GetCenter())
        affine = self._linear(fixed, moving, wide)
        return affine if self.method == "affine" else self._spline(fixed, moving, affine)

    def _linear(self, fixed: sitk.Image, moving: sitk.Image, start: sitk.Transform) -> sitk.Transform:
        import SimpleITK as sitk  # noqa: N813

        method = self._by_information()
        method.SetOptimizerAsRegularStepGradientDescent(1.0, 1e-3, self.iterations)
        method.SetOptimizerScalesFromPhysicalShift()
        method.SetInitialTransform(start, inPlace=False)
        transform = method.Execute(fixed, moving)
        return (
            sitk.CompositeTransform(transform).GetNthTransform(0)
            if transform.GetName() == "CompositeTransform"
            else transform
        )

    def _spline(self, fixed: sitk.Image, moving: sitk.Image, affine: sitk.Transform) -> sitk.Transform:
        import SimpleITK as sitk  # noqa: N813

        method = self._by_information(
            share=min(self.share, 0.02)
        )  # each sample bends 64 control points along each axis
        spline = sitk.BSplineTransformInitializer(fixed, [self.grid] * 3)
        method.SetOptimizerAsLBFGSB(
            numberOfIterations=self.iterations, maximumNumberOfFunctionEvaluations=2 * self.iterations
        )
        method.SetMovingInitialTransform(affine)
        method.SetInitialTransform(spline, inPlace=True)
        method.Execute(fixed, moving)
        # The spline moves points of the fixed image first, the affine map then.
        return sitk.CompositeTransform([affine, spline])

    def _demons(self, fixed: sitk.Image, moving: sitk.Image, rigid: sitk.Transform) -> sitk.Transform:
        import SimpleITK as sitk  # noqa: N813

        near = sitk.Resample(moving, fixed, rigid, sitk.sitkLinear, 0.0)
        near = sitk.HistogramMatching(near, fixed, 256, 15, True)
        demons = sitk.DiffeomorphicDemonsRegistrationFilter()
        demons.SetNumberOfIterations(self.iterations)
        demons.SetStandardDeviations(self.smoothing)
        demons.SetNumberOfThreads(1)
        field = demons.Execute(fixed, near)
        return sitk.CompositeTransform([rigid, sitk.DisplacementFieldTransform(field)])

    def _by_information(self, share: float | None = None) -> Any:
        import SimpleITK as sitk  # noqa: N813

        method = sitk.ImageRegistrationMethod()
        method.SetMetricAsMattesMutualInformation(32)
        method.SetMetricSamplingStrategy(method.REGULAR)
        method.SetMetricSamplingPercentage(share or self.share, self.seed)
        method.SetInterpolator(sitk.sitkLinear)
        method.SetShrinkFactorsPerLevel([4, 2, 1])
        method.SetSmoothingSigmasPerLevel([2, 1, 0])
        method.SetNumberOfThreads(1)  # sums in another order are other numbers
        return method


def displacement_in_voxels(steps: Array, fixed: Geometry, moving: Geometry) -> Array:
    """Displacement in mm RAS+ as voxels of the fixed grid, float64, (axes, *spatial)."""
    coordinates = np.indices(fixed.shape, dtype=np.float64)
    ends = np.tensordot(fixed.affine[:3, :3], coordinates, 1) + fixed.affine[:3, 3].reshape(3, 1, 1, 1) + steps
    inverse = np.linalg.inv(moving.affine)
    return np.tensordot(inverse[:3, :3], ends, 1) + inverse[:3, 3].reshape(3, 1, 1, 1) - coordinates


def _grey_image(image: Image) -> sitk.Image:
    import SimpleITK as sitk  # noqa: N813

    return sitk.Cast(Image(image.array[:1], image.affine, image.modality, image.units).to_sitk(), sitk.sitkFloat32)
