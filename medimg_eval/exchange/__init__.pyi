from .monai_tensors import as_tensor as as_tensor, from_metatensor as from_metatensor, to_metatensor as to_metatensor
from .nibabel_images import UNSIZED as UNSIZED, from_nibabel as from_nibabel, to_nibabel as to_nibabel
from .parts import Parts as Parts, plain_affine as plain_affine
from .simpleitk_images import from_sitk as from_sitk, to_sitk as to_sitk
