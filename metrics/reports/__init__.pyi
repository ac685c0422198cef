from .icon_consistency import (
    Written as Written,
    consistency as consistency,
    equivalents_by_observations as equivalents_by_observations,
)
from .labeler.labeler import (
    Mention as Mention,
    combined as combined,
    label_report as label_report,
    measurements as measurements,
    mentions as mentions,
    sentences as sentences,
)
from .labeler.lengths import TUBE as TUBE
from .labels.f1 import label_scores as label_scores
from .labels.family import label_family as label_family
from .labels.schemes import LabelScheme as LabelScheme, Reading as Reading
from .labels.taxonomies import (
    CHEXPERT_14 as CHEXPERT_14,
    CHEXPERT_5 as CHEXPERT_5,
    Taxonomy as Taxonomy,
    labels_of as labels_of,
)
from .lunguage import (
    lunguage_of as lunguage_of,
    lunguage_scores as lunguage_scores,
    read_rows as read_rows,
    texts_in as texts_in,
)
from .radcliq import radcliq_of as radcliq_of
from .radgraph import radgraph_combined as radgraph_combined, radgraph_f1 as radgraph_f1
from .ratescore_entities import TYPES as TYPES, rate_score as rate_score, top_matches as top_matches
from .token_matching import (
    BertScores as BertScores,
    Rarity as Rarity,
    bertscore_of as bertscore_of,
    rarity as rarity,
)
from .timelines import (
    groups_of as groups_of,
    pair_f1 as pair_f1,
    purity as purity,
    read_timeline as read_timeline,
    timeline_row as timeline_row,
)
