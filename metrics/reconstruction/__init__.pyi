from .metrics import ms_ssim as ms_ssim, psnr as psnr, ssim as ssim
from .perceptual import KIND as KIND, check_perceived as check_perceived, lpips as lpips, pictures as pictures
from .presets import PRESETS as PRESETS
from .scores import (
    WHOLE as WHOLE,
    image_metrics as image_metrics,
    image_scores as image_scores,
    worst_image_scores as worst_image_scores,
)
