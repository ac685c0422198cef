from .base import FeatureExtractor as FeatureExtractor
from .perceptual import LPIPS as LPIPS, PerceptualDistance as PerceptualDistance
