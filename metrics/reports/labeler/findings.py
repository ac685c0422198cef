"""The words for what reports speak of: the 14 observations, what they are read off, and other findings."""

from __future__ import annotations

from typing import Any

ENLARGED = "Enlarged Cardiomediastinum"
HEART = "Cardiomegaly"
OPACITY = "Lung Opacity"
LESION = "Lung Lesion"
EDEMA = "Edema"
CONSOLIDATION = "Consolidation"
PNEUMONIA = "Pneumonia"
ATELECTASIS = "Atelectasis"
PNEUMOTHORAX = "Pneumothorax"
EFFUSION = "Pleural Effusion"
PLEURA = "Pleural Other"
FRACTURE = "Fracture"
DEVICES = "Support Devices"
NO_FINDING = "No Finding"

POSITIVE, NEGATIVE, UNCERTAIN = 1, 2, 3

_ENLARGED = """
widened|wide|enlarged|prominent|broad mediastinum
mediastinal|cardiomediastinal widening|enlargement|prominence|mass|masses|hematoma|fullness
widening|enlargement|prominence|broadening of the ?superior|upper mediastinum
widening|enlargement|prominence of mediastinum
"""
_HEART = """
cardiomegaly
cardiac|heart|ventricular|atrial|biventricular|biatrial|chamber enlargement
cardiac|heart dilatation|dilation
ventricular|atrial|ventricle|atrium dilatation|dilation
megacardia
"""
_OPACITY = """
opacity|opacities|opacification|opacifications|opacified
infiltrate~|infiltration|infiltrations|infiltrative
airspace|alveolar|parenchymal ?lung disease|process|processes|abnormality|abnormalities
interstitial|bronchovascular|peribronchial ?lung disease|process|processes|abnormality|abnormalities
airspace|alveolar|parenchymal ?lung change~|infiltrate~|density|densities|opacity|opacities
interstitial|bronchovascular|peribronchial ?lung change~|infiltrate~|density|densities|opacity|opacities
air space disease|process|abnormality|density|opacity|opacities|opacification
increased|prominent|coarse ?of ?in ?the ?bilateral ?diffuse interstitial|bronchovascular|reticular markings
increased|prominent|coarse ?of ?in ?the ?bilateral ?diffuse lung|pulmonary|perihilar markings
coarsened|accentuated ?of ?in ?the ?bilateral ?diffuse interstitial|bronchovascular|reticular markings
prominence|increase ?of ?in ?the ?bilateral ?diffuse interstitial|bronchovascular|reticular markings
coarsened|accentuated|prominence|increase ?of ?in ?the ?bilateral ?diffuse lung|pulmonary|perihilar markings
interstitial|bronchovascular|reticular|pulmonary|lung markings increased|prominent|coarse|coarsened
interstitial|bronchovascular markings are|is|appear|remain ?mildly|diffusely|slightly increased|prominent
interstitial|bronchovascular markings are|is|appear|remain ?mildly|diffusely|slightly coarse|coarsened
reticular|pulmonary|lung markings are|is|appear|remain ?mildly|diffusely|slightly increased|prominent|coarse|coarsened
interstitial pattern|thickening|lung|prominence|edematous
decreased translucency
increased|hazy|patchy|focal|confluent|basilar|ill defined density|densities
retrocardiac|perihilar|infrahilar|bibasilar|lobe|zone|streaky|vague|linear density|densities
ground glass ?opacity|opacities|opacification|density|densities|attenuation
groundglass ?opacity|opacities|opacification
haziness
reticular|reticulonodular ?opacity|opacities|pattern|marking~|change~|density|densities
reticulation~|reticulations
peribronchial|bronchial|peribronchovascular ?wall thickening|cuffing
parenchymal|apical|biapical|lung|linear|bibasilar|basilar|pulmonary scar~|scarring
scar~|scarring
whiteout
white out
"""
_LESION = """
mass|masses|masslike
mass like ?opacity|opacities|consolidation|density|lesion
nodule~|micronodule~|nodularity
nodular lesion~|focus|foci
lump~
lesion~
cavitary|cavitating|pulmonary|lung ?lung|pulmonary|parenchymal lesion~|mass|masses
parenchymal|suspicious|hilar|spiculated|focal ?lung|pulmonary|parenchymal lesion~|mass|masses
cavity|cavities
cancer~|carcinoma~|adenocarcinoma|neoplasm~|neoplastic|tumor~|tumour~|malignancy|malignancies|lymphoma
metastasis|metastases|metastatic
metastatic disease|nodule~|lesion~
"""
_BOTH = """
nodular|nodule|mass|masslike like ?opacity|opacities
nodular|masslike opacity|opacities|opacification|density|densities
"""
_EDEMA = """
?interstitial|alveolar|pulmonary|cardiogenic|noncardiogenic|perihilar ?pulmonary|airspace edema|oedema
?congestive|decompensated heart|cardiac failure
congestive failure
chf|fluid|volume overload
chf
fluid|volume overload
cardiac decompensation
kerley ?a|b line~
kerley ?a|b septal line~
edematous
failure
"""
_CONGESTION = """
pulmonary|vascular|venous|hilar|central|perihilar|cardiac ?vascular|venous|vein|interstitial congestion|engorgement
?pulmonary|central vascular congestion|engorgement|prominence|indistinctness|redistribution|cephalization
congestion
congestive change~
indistinctness
vascular|pulmonary prominence
prominence|engorgement|congestion|fullness of the ?central|hilar ?pulmonary vasculature|vascularity|vessels
pulmonary vascular prominence
cephalization
"""
_CONSOLIDATION = """
?airspace|focal|lobar|air|alveolar ?space consolidation~|consolidations
consolidative|consolidated|consolidating ?opacity|opacities|process|change~
"""
_CONSOLIDATED = "consolidative|consolidated|consolidating airspace|space opacity|opacities"
_PNEUMONIA = """
pneumonia~|pna|pnas|pneumonic|bronchopneumonia|pneumoniae
pneumonic|infectious infiltrate~|process|focus|consolidation
infection~
infectious|infective ?process|processes|etiology|cause|disease
infected
"""
_ATELECTASIS = """
atelectasis|atelectases|atx|atel|atelectatic|atelectic|atelectasia
atelectatic change~
plate like atelectasis
?lobar|lung|lobe collapse
?partially collapsed lung|lobe
collapse|collapsed
"""
_PNEUMOTHORAX = """
pneumothorax|pneumothoraces|pneumothoraxes|ptx|ptxs|pnx|pneumothoracies
"""
_EFFUSION = """
?pleural|parapneumonic|subpulmonic effusion~
?pleural eff~
pleural|subpulmonic|loculated|layering fluid
fluid in|within the ?left|right ?pleural|costophrenic|fissural fissure~|space|cavity|angle|sulcus
hemothorax|haemothorax|hydrothorax|hemothoraces|chylothorax|pyothorax
"""
_PLEURA = """
pleural and parenchymal scar~|scarring|thickening
pleural|pleuroparenchymal scar~|scarring
biapical|apical pleural scar~|scarring
pleural|apical|biapical|pleuroparenchymal ?pleural thickening|plaque~|capping|cap~
pleural|apical|biapical|pleuroparenchymal ?pleural calcification~|fibrosis|nodularity|mass
pleural|apical|biapical|pleuroparenchymal ?pleural masses|nodule~|abnormality|disease|based|lesion~|tumor|calcified
pleuro|pleural parenchymal|pericardial scar~|scarring|thickening|change~|fibrosis
pleuroparenchymal scar~|scarring|thickening|change~|fibrosis
thickening|scarring|calcification of|in|along the ?left|right|apical pleura
thickened pleura
fibrosis|fibrothorax|fibrotic
fibrotic change~|scarring|disease
calcified|pleural pleural plaque~
empyema
"""
_FRACTURE = """
fracture~|fractured|fx|fxs
vertebral|compression|wedge ?body ?compression deformity|deformities|collapse
"""
_DEVICES = """
pacemaker~|pacer~|aicd~|icd~|picc~|defibrillator~
cardioverter|mediport~|portacath~|catheter~|cannula~|cannulae|hardware
tube~|line~|wire~|clip~|stent~|drain~|sheath~|coils|screw~
plate|plates|rods|staples|sutures|prosthesis|prostheses|prosthetic|arthroplasty|arthroplasties
device~|apparatus|equipment|leads|electrode~|ett|ngt|ogt|cvl|cvc|iabp|ecmo
lvad|impella|dobhoff|dobbhoff|pigtail|tracheostomy|intubated|marker~|valve~|bioprosthesis|bioprosthetic
support|monitoring|medical|assist device~|apparatus|equipment|hardware|lead~|line~
et|ng|og|endotracheal|nasogastric|orogastric|enteric|feeding|chest|tracheostomy tube~|catheter~|drain~
gastric|thoracostomy|pleural|drainage|pigtail tube~|catheter~|drain~
gastrostomy|dobbhoff|nasoenteric|tracheal|weighted tube~|catheter~|drain~
picc|central|venous|subclavian|jugular|ij|svc ?venous|jugular|access|ganz line~|catheter~|sheath~|introducer
arterial|swan|dialysis|hemodialysis ?venous|jugular|access|ganz line~|catheter~|sheath~|introducer
internal|vascular|hickman|infusion ?venous|jugular|access|ganz line~|catheter~|sheath~|introducer
swan ganz ?catheter
swan
pacemaker|pacer|pacing|icd|aicd ?chamber lead~|wire~|device~|pacemaker~|pacer~|electrode~
defibrillator|ventricular|atrial|dual|single|biventricular ?chamber lead~|wire~|device~|pacemaker~|pacer~|electrode~
surgical|sternal|sternotomy|cerclage|hemostatic ?median clip~|wire~|staples|material|anchor~|line~|chain~
mediastinal|vascular|skin|cholecystectomy|suture ?median clip~|wire~|staples|material|anchor~|line~|chain~
median sternotomy wire~
port|chest a cath ?catheter
?infusion|chest|subclavian|jugular|power|central|venous|medication port|ports
port|ports
intra aortic balloon ?pump
intraaortic balloon ?pump
balloon pump
loop recorder
nerve|vagal|vagus|spinal|neural|cord stimulator
neurostimulator|stimulator
?spinal|cervical|thoracic|lumbar|orthopedic|internal|rod fixation|fusion hardware|device|plate~|rod~
internal fixation
spinal fusion|rod~
mitral|aortic|tricuspid|prosthetic|mechanical|cardiac|heart|bioprosthetic valve replacement|prosthesis
prosthetic|mechanical|replaced|artificial|metallic ?mitral|aortic|heart|cardiac valve~
tavr|watchman|mitraclip
valve replacement
ventriculoperitoneal|vp shunt
shunt
gastric|lap band
ventricular assist device
support lines
"""
_AS_ONE = """
pericardial|joint|knee|middle effusion~
soft|subcutaneous|laryngeal|peripheral|leg ?tissue|extremity edema|emphysema
ankle|cerebral|brain|epiglottic|lower|extremity ?tissue|extremity edema|emphysema
mass effect
plate like
pleural|skin|fracture|fissure|psoas|fat|paratracheal|paraspinal|paravertebral|mediastinal|azygoesophageal|stripe line~
septal line~
pleural|thoracic|chest|abdominal|oral|peritoneal|joint cavity|cavities
end plate|plates
fatty infiltration|infiltrate
in line with
axillary|axillary|midclavicular|shallow|straight line~
renal|kidney|respiratory|hepatic|liver|treatment failure
lung|airspace|air|opaque markings
bone|osseous|bony|lytic|sclerotic|blastic|rib|skin ?lytic|sclerotic|blastic|bony|bone lesion~|mass|masses
bone|osseous|bony|lytic ?lytic|sclerotic|blastic|bony|bone nodule~|metastasis|metastases|tumor
sclerotic|blastic|rib|skin ?lytic|sclerotic|blastic|bony|bone nodule~|metastasis|metastases|tumor
vertebral|thyroid|breast|renal ?lytic|sclerotic|blastic|bony|bone lesion~|mass|masses
vertebral|thyroid|breast|renal ?lytic|sclerotic|blastic|bony|bone nodule~|metastasis|metastases|tumor
liver|hepatic|adrenal|skeletal ?lytic|sclerotic|blastic|bony|bone lesion~|mass|masses
liver|hepatic|adrenal|skeletal ?lytic|sclerotic|blastic|bony|bone nodule~|metastasis|metastases|tumor
thyroid|breast|nipple|adrenal|renal|liver|hepatic|splenic mass|masses|nodule~|lesion~|shadow~
body|muscle mass
skin marker~
nipple marker~
fractured|broken ?sternal|sternotomy|median ?sternotomy|pacemaker|icd wire~|lead~
view~|exam|portable|technique line
urinary|wound|viral|soft|sinus|skin|bladder ?tract|tissue infection~
test|eustachian|fallopian tube~
aortic|mitral|tricuspid valve|valvular ?annulus|annular calcification~
calcification~ of the aortic|mitral ?and|or ?mitral valve~
elevated|increased risk
"""
_OTHER = """
emphysema|emphysematous|blunting|blunted|scoliosis|kyphosis|dextroscoliosis|levoscoliosis
degenerative|spondylosis|osteophyte~|osteopenia|osteoporosis|arthritis|arthropathy|dish
calcification~|calcified|atherosclerosis|atherosclerotic|tortuous
tortuosity|unfolded|ectasia|ectatic|aneurysm|aneurysmal
hyperinflation|hyperinflated|hyperexpansion|hyperexpanded|hyperexpanded|copd|asthma|bronchitis
bronchiolitis|bronchiectasis|bulla|bullae|bullous|cyst~|cystic|bleb~
hernia|granuloma~|granulomatous|plaque~|lucency|lucencies|deformity
deformities|eventration|elevation|hematoma|hemorrhage|contusion~|aspiration
pneumomediastinum|pneumoperitoneum|pneumopericardium|lymphadenopathy|adenopathy|hypertension|thickening
cuffing|inflammation|inflammatory|bullet|shrapnel|sclerosis|sclerotic|lytic
airways disease
volume loss
free air|gas
intraperitoneal air
subcutaneous air|emphysema|gas
elevated|elevation left|right|hemidiaphragm
elevation of the ?left|right hemidiaphragm
pericardial effusion~
enlarged|prominent hila|hilum
hilar prominence|enlargement|fullness
foreign body|bodies
tracheal|mediastinal deviation|shift
calcified nodule~|granuloma~|node~
calcified ?pulmonary|lung nodule~|granuloma~
"""
_HEART_SEEN = """
heart|cardiac|cardiopericardial|cardiothymic size|silhouette~|shadow|contour~|outline
size of the heart
size of heart
heart|ventricles
cardiac size and silhouette
cardiothoracic ratio
"""
_CHEST_SEEN = """
cardiomediastinal|mediastinal|cardiovascular silhouette~|contour~|structures|shadow
cardiomediastinal|mediastinal|cardiovascular border~|outline|width|configuration
cardiac silhouette and vascularity
mediastinum|cardiomediastinum
mediastinal and hilar contour~|silhouette~|structures|shadow~|border~
hilar and mediastinal contour~|silhouette~|structures|shadow~
mediastinal hilar contour~
pericardial silhouette
cardiomediastinal and hilar contour~|silhouette~
"""
_PLACES = """
tip|tips|sidehole|balloon
side port|hole
lungs|lung|lobes|hila|aorta|bones|pleura|diaphragm|hemidiaphragms|hemidiaphragm|ribs|spine
lung|osseous|bony|hilar|soft|visualized ?bony fields|structures|bases|volumes|tissues|contours|silhouette
upper ?visualized abdomen
visualized osseous ?structures
costophrenic angles|sulci
pulmonary vasculature|vascularity|vessels
"""
"""What else can stand at the beginning of a thought, so that what follows is not about what was named before."""
_TWO_SEEN = "cardiac|heart and mediastinal contour~|silhouette~|structures|shadow~|border~|outline~"

NAMED: tuple[tuple[str, Any, str], ...] = (
    ("other", None, _OTHER),
    ("seen", (HEART,), _HEART_SEEN),
    ("seen", (ENLARGED,), _CHEST_SEEN),
    ("seen", (HEART, ENLARGED), _TWO_SEEN),
    ("seen", (), _PLACES),
    ("part", (HEART,), "cardiac"),
    ("part", (ENLARGED,), "mediastinal"),
    ("finding", ((ENLARGED,), POSITIVE), _ENLARGED),
    ("finding", ((HEART,), POSITIVE), _HEART),
    ("finding", ((OPACITY,), POSITIVE), _OPACITY),
    ("finding", ((LESION,), POSITIVE), _LESION),
    ("finding", ((OPACITY, LESION), POSITIVE), _BOTH),
    ("finding", ((EDEMA,), POSITIVE), _EDEMA),
    ("finding", ((EDEMA,), UNCERTAIN), _CONGESTION),
    ("finding", ((CONSOLIDATION,), POSITIVE), _CONSOLIDATION),
    ("finding", ((CONSOLIDATION, OPACITY), POSITIVE), _CONSOLIDATED),
    ("finding", ((PNEUMONIA,), POSITIVE), _PNEUMONIA),
    ("finding", ((ATELECTASIS,), POSITIVE), _ATELECTASIS),
    ("finding", ((PNEUMOTHORAX,), POSITIVE), _PNEUMOTHORAX),
    ("finding", ((PNEUMOTHORAX, EFFUSION), POSITIVE), "hydropneumothorax|hemopneumothorax|hydropneumothoraces"),
    ("finding", ((EFFUSION,), POSITIVE), _EFFUSION),
    ("finding", ((PLEURA,), POSITIVE), _PLEURA),
    ("finding", ((FRACTURE,), POSITIVE), _FRACTURE),
    ("finding", ((DEVICES,), POSITIVE), _DEVICES),
    ("as one", None, _AS_ONE),
    ("finding", ((DEVICES,), POSITIVE), "fractured|broken ?sternal|sternotomy|median ?sternotomy wire~|lead~"),
    ("other", None, "calcified ?lung|pulmonary nodule~\npericardial effusion~"),
)
"""Kind, what it holds, phrases. A finding holds its observations and its status where nothing is said about it."""
