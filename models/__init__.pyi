from .annotators.base import PairAnnotator as PairAnnotator, TextAnnotator as TextAnnotator
from .annotators.bertscore import BertScore as BertScore
from .annotators.chexbert import CheXbert as CheXbert, CheXbertSimilarity as CheXbertSimilarity
from .annotators.language_model import LanguageModelLabeler as LanguageModelLabeler
from .annotators.lunguage import Lunguage as Lunguage, LunguageTimeline as LunguageTimeline
from .annotators.radgraph.model import (
    ModernRadGraphXL as ModernRadGraphXL,
    RadGraph as RadGraph,
    RadGraphXL as RadGraphXL,
)
from .annotators.ratescore import RaTEScore as RaTEScore
from .annotators.text_classifiers import ReportClassifier as ReportClassifier, SrrBert as SrrBert
from .annotators.wordnet import WordNetMeteor as WordNetMeteor
from .base import (
    Chooser as Chooser,
    Detector as Detector,
    Embedder as Embedder,
    Model as Model,
    Reconstructor as Reconstructor,
    Registrar as Registrar,
    Regressor as Regressor,
    FrameLabeler as FrameLabeler,
    RiskModel as RiskModel,
    Segmenter as Segmenter,
    Synthesizer as Synthesizer,
    VisionLanguageModel as VisionLanguageModel,
)
from .baselines.class_frequency import ClassFrequency as ClassFrequency
from .baselines.gaussian_mixture import GaussianMixture as GaussianMixture
from .baselines.kaplan_meier_estimate import KaplanMeierEstimate as KaplanMeierEstimate
from .baselines.mean_of_fit import MeanOfFit as MeanOfFit
from .baselines.questions import (
    Chance as Chance,
    LongestOption as LongestOption,
    Majority as Majority,
    NearestQuestion as NearestQuestion,
)
from .baselines.reports import (
    MostFrequentReport as MostFrequentReport,
    NearestReport as NearestReport,
    NormalReport as NormalReport,
)
from .classification.base import NetworkClassifier as NetworkClassifier
from .classification.contract import Classifier as Classifier
from .classification.monai import ImageClassifier as ImageClassifier
from .classification.clips import ClipClassifier as ClipClassifier
from .classification.merged import MergedClassifier as MergedClassifier
from .classification.open_clip import OpenClipClassifier as OpenClipClassifier
from .classification.timm import TimmClassifier as TimmClassifier
from .command.model import CommandModel as CommandModel
from .extractors.base import (
    Encoder as Encoder,
    FeatureExtractor as FeatureExtractor,
    FeatureTable as FeatureTable,
    Pixels as Pixels,
)
from .extractors.colours import ColourStatistics as ColourStatistics
from .extractors.signals import SequenceCounts as SequenceCounts, SignalStatistics as SignalStatistics
from .extractors.classifiers import (
    FindingClassifier as FindingClassifier,
    ModelClassifier as ModelClassifier,
    ViewClassifier as ViewClassifier,
)
from .extractors.networks import (
    BioViLT as BioViLT,
    Inception as Inception,
    OpenClipEncoder as OpenClipEncoder,
    PatientSiamese as PatientSiamese,
    TimmEncoder as TimmEncoder,
    TransformersEncoder as TransformersEncoder,
)
from .extractors.perceptual import DISTS as DISTS, LPIPS as LPIPS, PerceptualDistance as PerceptualDistance
from .extractors.torch_encoders import (
    TorchScriptEncoder as TorchScriptEncoder,
    TorchvisionEncoder as TorchvisionEncoder,
)
from .extractors.volumes import (
    MedicalNetEncoder as MedicalNetEncoder,
    TorchScriptVolumeEncoder as TorchScriptVolumeEncoder,
    VideoNetworkEncoder as VideoNetworkEncoder,
    VolumeEncoder as VolumeEncoder,
)
from .precomputed.classes import PrecomputedClasses as PrecomputedClasses
from .precomputed.coco import PrecomputedCoco as PrecomputedCoco
from .precomputed.frames import PrecomputedFrames as PrecomputedFrames
from .precomputed.images import (
    PrecomputedImages as PrecomputedImages,
    PrecomputedReconstructions as PrecomputedReconstructions,
)
from .precomputed.masks import MaskFiles as MaskFiles, NnUnetResults as NnUnetResults, Precomputed as Precomputed
from .precomputed.annotations import PrecomputedAnnotations as PrecomputedAnnotations
from .precomputed.motions import PrecomputedMotions as PrecomputedMotions
from .precomputed.points_boxes import PrecomputedNumbers as PrecomputedNumbers, PrecomputedPlaces as PrecomputedPlaces
from .precomputed.remeasured import RemeasuredReports as RemeasuredReports
from .precomputed.risks import PrecomputedRisks as PrecomputedRisks
from .precomputed.texts import LoggedReplies as LoggedReplies, PrecomputedReports as PrecomputedReports
from .precomputed.timelines import PrecomputedTimelines as PrecomputedTimelines
from .precomputed.transforms import PrecomputedTransforms as PrecomputedTransforms
from .precomputed.values import PrecomputedValues as PrecomputedValues
from .probe import Probe as Probe
from .fitted import refuse_folds as refuse_folds
from .fusion import FusionProbe as FusionProbe
from .reconstruction.linear import (
    FunctionReconstructor as FunctionReconstructor,
    SenseCombine as SenseCombine,
    ZeroFilled as ZeroFilled,
)
from .reconstruction.network import NetworkReconstructor as NetworkReconstructor
from .registration.identity import Identity as Identity
from .registration.simple_itk import SimpleItkRegistration as SimpleItkRegistration
from .report_generation.generator import ReportGenerator as ReportGenerator
from .segmentation.ensemble import Vote as Vote
from .segmentation.monai import Bundle as Bundle, MonaiSegmenter as MonaiSegmenter, VistaSegmenter as VistaSegmenter
from .segmentation.postprocess import DropSmall as DropSmall, FillHoles as FillHoles, KeepLargest as KeepLargest
from .segmentation.promptable import PromptableSegmenter as PromptableSegmenter, Sam as Sam
from .synthesis import Diffusers as Diffusers
from .inspect import InspectAgent as InspectAgent, as_chat_messages as as_chat_messages
from .vision_language.green import GreenModel as GreenModel
from .vision_language.huggingface.lora import LoraVLM as LoraVLM
from .vision_language.huggingface.model import HuggingFaceVLM as HuggingFaceVLM
from .vision_language.jury import Jury as Jury
from .vision_language.open_clip import OpenClip as OpenClip
from .vision_language.openai.model import OpenAICompatible as OpenAICompatible
from .vision_language.served import ServedModel as ServedModel, SglangModel as SglangModel, VllmModel as VllmModel
from .vision_language.volume_models import M3DLaMed as M3DLaMed, VolumeModel as VolumeModel
from .workflow.asked import AskedFrames as AskedFrames
from .workflow.poses import PoseClassifier as PoseClassifier
from .workflow.smoothed import SmoothedFrames as SmoothedFrames
from .workflow.temporal import TemporalModel as TemporalModel
