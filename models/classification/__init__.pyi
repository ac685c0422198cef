from .base import class_loss as class_loss
from .contract import Classifier as Classifier, log_softmax as log_softmax
