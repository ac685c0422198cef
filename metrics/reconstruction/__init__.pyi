from .metrics import (
    PRESETS as PRESETS,
    image_metrics as image_metrics,
    image_scores as image_scores,
    ms_ssim as ms_ssim,
    psnr as psnr,
    ssim as ssim,
    worst_image_scores as worst_image_scores,
)
from .perceptual import KIND as KIND, check_perceived as check_perceived, lpips as lpips, pictures as pictures
from .scores import WHOLE as WHOLE
