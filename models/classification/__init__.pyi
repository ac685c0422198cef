from .contract import Classifier as Classifier, log_softmax as log_softmax
