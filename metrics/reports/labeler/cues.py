"""The words that turn what reports speak of: negation, doubt, change, questions, and where a thought ends."""

from __future__ import annotations

from typing import Any

_NOT_BEFORE = """
no|without|nor|denies|neither|never|absent
w / o ?evidence|sign~ ?of
not|doesn't|isn't|aren't|don't|nothing
?there is|are no|without evidence|sign~|finding~|indication|suggestion of|for|to|that ?developing
?there is|are no|without suspicion|appearance|development|focus|area~ of|for|to|that ?developing
no|without finding~ suggestive|suspicious|concerning|worrisome|indicative of|for
no reason to suspect
negative|neg for
free|clear|devoid of
absence|lack|exclusion of
rules out
excludes
rather than
instead of
not ?clearly|definitely represent|represents|representing|due|related|suggest|indicate to|of
not ?to have
fails|failed to show|demonstrate|reveal
"""
_NOT_BEHIND = """
?is|are|was|were|has|have ?been not seen|identified|present|appreciated
?is|are|was|were|has|have ?been not visualized|visualised|demonstrated|evident|detected
?is|are|was|were|has|have ?been not noted|observed|apparent|found|visible
?is|are|was|were|has|have ?been not shown|suspected|suggested|confirmed|recognized
is|are|was|were not|n't there
is|are|was|were absent|negative|gone|excluded
absent|excluded
?has|have|is|was|been ?been ruled out
highly|very|extremely|most|quite unlikely
none|nil
cannot|can't be seen|identified|found
?were|was previously demonstrated|visualized
does|do|did not persist|exist|remain
?is|are out of the question
"""
_GONE_BEFORE = """
?interval|complete|total resolution|removal|clearing of ?the
?status post removal of
no longer ?any|a
"""
_GONE_BEHIND = """
?is|are no longer seen|identified|present|appreciated|visualized|demonstrated|evident|detected|noted|visible|apparent
?has|have|is|are ?been resolved|cleared|disappeared|vanished
?has|have|is|are|was|were ?been removed|discontinued
?with complete|interval|total resolution
?interval removal
"""
_DOUBT_BEFORE = """
possible|possibly|probable|probably|likely|perhaps|maybe|presumed|presumably|suspected|suspect|questionable
question|equivocal|presumptive|potential|potentially|conceivably|query|doubt|favor|favors|favoring|favored
may|might|could|can|would ?well be|represent|reflect|indicate|include ?due|related|secondary|compatible ?to|with|by
may|might|could|can|would ?well have|suggest|relate ?due|related|secondary|compatible ?to|with|by
may|might|could|can|would ?well correspond|signify|denote ?due|related|secondary|compatible ?to|with|by
may|might|could|can|would ?well be|represent|reflect|indicate|include consistent|attributable ?to|with|by
may|might|could|can|would ?well be|represent|reflect|indicate|include represented|caused|explained ?to|with|by
may|might|could|can|would ?well have|suggest|relate|correspond|signify|denote consistent|attributable ?to|with|by
may|might|could|can|would ?well have|suggest|relate|correspond|signify|denote represented|caused|explained ?to|with|by
can|may|might|could be seen with|in
cannot|can't|cant exclude|dismiss
cannot|can't|cant rule out
?can|could|does|do|did|would|may not rule out
?can|could|does|do|did|would|may not exclude|excluding|excludes
cannot|can't ?be sure|certain ?of|about|that
not|hardly possible to exclude|dismiss
unable|difficult|impossible|hard to exclude|rule|assess ?out ?for
difficult to exclude
question|possibility|suspicion|likelihood|concern|concerns|suspicious|risk of|for ?an|a ?the
?raises|raising|raise ?the ?a question|possibility|concern|suspicion of|for
?versus|vs less likely
less|more|not likely
unlikely ?to ?be|represent|reflect|indicate
differential ?diagnosis|considerations ?includes|include|including|is|of|would
?is a consideration ?of
consider|considerations|considered
correlate|correlation ?clinically ?with|for ?evidence|symptoms|signs ?or ?symptoms ?of
appears|appear|seems|seem to be|represent
thought|felt|believed to|likely be|represent|reflect
not certain
possibly|probably|likely|perhaps|possible|presumably with|from
most|more likely
if ?not an|a
"""
_DOUBT_OF = """
suggestive|suspicious|concerning|worrisome|indicative|concern|suspicion|question of|for ?an|a
suggest|suggests|suggesting
?cannot be differentiated|distinguished from
"""
_DOUBT_BEHIND = """
?can|could|may|might|is|are|was|would|has|have not ?be|been excluded
cannot|can't|cant be excluded|dismissed
cannot|can't|cant be ruled out
?can|could|may|might|is|are|was|has|have not ?be|been ruled out
difficult|hard|impossible to exclude
not ?be out of the question
is|are|be|was|not possible|suspected|questioned|equivocal|questionable
is|are|be|was|not conceivable|doubtful|uncertain|considered|indeterminate
?is|are favored|doubted
uncertain|indeterminate|questioned|conceivable|doubtful
may|might|could|can|would ?also|possibly be present|considered|possible|suspected|seen|there|developing
may|might|could|would ?also|well|possibly exist|appear
may|might|could ?also have this appearance
should|must be considered
?is|are|was|were poorly|incompletely|suboptimally|inadequately|limitedly evaluated|assessed|visualized|seen|defined
?is|are not evaluated|assessed
?is|are not well|clearly|fully|optimally|adequately seen|visualized|defined|demonstrated|evaluated|assessed
cannot be evaluated|assessed|determined|confirmed|established
?is|are neither confirmed nor excluded
?is|are suggested|raised
should|must|to|needs ?to be excluded
should|must|to|needs ?to be ruled out
is|are ?partially|mostly|completely obscured
difficult|hard to assess|evaluate|determine
?is|are not certain
if ?indeed ?truly present|real|any
in the differential
"""
_ASKED = """
?please|to|for evaluate|eval|evaluation|assess|assessment|look|looking|check|screen|screening|monitor ?for|of
rule out
r ?/ o
to|and exclude|confirm
please|question|interval rule|eval|check ?out|for
?past|medical|clinical|remote|known|prior history of
hx|h o of
hx of
history
h o
if ?there ?is ?a ?clinically|clinical ?high
?if ?there ?is|are ?a ?high clinical|clinically suspicion|concern|suspected ?for|of
symptoms|signs of
risk of|for
treated|treatment|treat for
indication|reason for ?exam|examination|study|this
?year old patient|male|female|man|woman with
predisposing|predispose to
to|until|ensure|document|confirm|assess|evaluate|demonstrate|verify|for ?the resolution|clearing ?of
"""
_CLOSED = """
?the|is evaluation|assessment|exam|examination|study|visualization is|was limited|suboptimal|degraded ?by|due ?to
age|acuity indeterminate|uncertain
indeterminate|uncertain age|acuity|chronicity
?is|was|were not present|seen|identified|there on|in ?the|a prior|previous|earlier
, none|nil on|in|at
not|no only
no doubt
doubtful|uncertain|questionable ?acute|clinical importance|significance
not necessarily
no prior|priors|comparison|comparisons|previous
no study|studies|exam|films ?available
without comparison|priors|prior
without|with and without
without|no contrast
without|no difficulty|complication|complications
?as versus|vs|with ?the ?most prior|previous|earlier|recent|yesterday|before
compared to|with ?the prior|previous|earlier|recent|yesterday
"""
_HELD = """
no|without|not change|changes|changed|difference ?in|of|from|to|since ?the
no|without resolution|clearing ?of
?is|are not|never|hardly absent|gone|negative|without
?is|are no longer absent|gone|free|clear|without ?of
no|little|without reason|doubt ?to ?doubt
no|without improvement|increase|decrease|worsening|progression|growth ?in|of ?the
not changed|improved|worsened|increased|decreased|different|resolved|cleared
not resolved|cleared|removed
has|have not changed|improved|worsened|increased|decreased|resolved|cleared
has|have not been removed
no|not|without less|worse|better
"""
_LASTS = """
unchanged|stable|persistent|persists|persist|similar|constant|unaltered|chronic|longstanding|redemonstrated|again
stably|static|persisting|stationary|ongoing|continued|remains|remain|residual|old|healed|known
long standing
?is|are|has|have not changed
"""
_NEW = "new|newly|developing|developed\n?new|interval development of"
_BETTER = """
improved|improving|improvement|improves|decreased|decreasing|decrease|resolving|reduced
smaller|diminished|lessened|less|reduction|decreases|clearing|subsiding|regressed
partial|partially|partly|near|nearly ?complete resolved|cleared|resolution|clearing ?of
almost|incomplete|incompletely|mostly|largely|substantially ?complete resolved|cleared|resolution|clearing ?of
near complete resolution|clearing ?of
?has|have partially|nearly|almost|incompletely|mostly|largely resolved|cleared
"""
_WORSE = """
worsened|worsening|worse|increased|increasing|increase|larger|progression|progressed
progressive|enlarging|progressing|bigger|growing|greater|more|grown|progresses|expanding
"""
_SIZES = """
small|mild|mildly|moderate|moderately|tiny|minimal|minimally
trace|severe|marked|extensive|subtle|slight|slightly|faint|bibasilar
basilar|patchy|dense|multifocal|diffuse|discoid|subsegmental|linear|hazy
sm|mod
multiple|several|scattered|interstitial|loculated|layering|sizable|sizeable|minor
"""
_NORMAL = """
normal|unremarkable|wnl|nl
normal|unremarkable limits|range
within ?the normal limits|range
not enlarged|widened|dilated|increased|prominent
intact|clear|sharp
"""
_LARGE = """
enlarged|enlargement|widened|widening|wide|large|dilated|dilatation|dilation
prominent|prominence|big|hypertrophied|hypertrophy|broadened|globular|abnormal|megaly
"""
_BORDER = """
borderline|exaggerated|accentuated|magnified
borderline|upper|top|high ?limits|limit ?of normal|enlarged|enlargement|size
?at ?the upper limit~ of ?the normal
borderline ?in size
top normal ?in size
"""

_VERBS = """
is|are|was|were|has|have|had|remains|remain|appears|appear|shows|show|demonstrates|noted|seen|shown|identified
visualized|terminates|ends|overlies|lies|projects
"""
_TURNS = """
but|however|although|though|yet|except|nevertheless|nonetheless|which|still|while|whereas|aside|apart|;|despite
because|therefore|given|following|after|since|post
, otherwise
except|aside|apart for|from|of
status post
s / p
other than
?and there is|are|has|have
?and it shows|demonstrates|reveals
in ?the setting|context of
"""
_FITS = """
consistent|compatible with
c / w
in keeping with
characteristic|typical|diagnostic|due to|of
represents|representing|reflects|reflecting|indicates|indicating
"""
_AND = """
and|&|also|/
as well as
along with
in addition to
"""
_OR = """
or
and or
and / or
"""
_AGAINST = """
versus|vs
?is|are|as less|more likely than
?is|are favored|preferred over
as opposed to
"""
_BOTH_SIDES = """
bilateral|bilaterally|both|bibasilar|biapical|bibasal|bilat
b / l
left and right
right and left
left greater|more|larger than right
right greater|more|larger than left
"""

_FILLERS = """
also now clearly definitely definitively completely entirely fully essentially since currently convincingly
significantly significant appreciably appreciable substantially substantial interval definite convincing obvious
radiographic overt specific gross grossly absolutely reliably necessarily clinically overall relevant further yet
simply potentially possibly still plain visible good major short term acute clear
"""
FILLERS = frozenset(_FILLERS.split())
"""Words that a phrase may hold behind its first word without being another phrase."""

CUES: tuple[tuple[str, Any, str], ...] = (
    ("size", None, _SIZES),
    ("change", "unchanged", _LASTS),
    ("change", "new", _NEW),
    ("change", "improved", _BETTER),
    ("change", "worse", _WORSE),
    ("large", None, _LARGE),
    ("normal", None, _NORMAL),
    ("border", None, _BORDER),
    ("doubt before", None, _DOUBT_BEFORE),
    ("doubt of", None, _DOUBT_OF),
    ("not before", None, _NOT_BEFORE),
    ("not before", "resolved", _GONE_BEFORE),
    ("doubt behind", None, _DOUBT_BEHIND),
    ("not behind", None, _NOT_BEHIND),
    ("not behind", "resolved", _GONE_BEHIND),
    ("asked", None, _ASKED),
    ("held", None, _HELD),
    ("closed", None, _CLOSED),
    ("verb", None, _VERBS),
    ("fits", None, _FITS),
    ("turn", None, _TURNS),
    (",", None, ","),
    (":", None, ":"),
    ("with", None, "with|showing|plus\nw ?/"),
    ("and", None, _AND),
    ("or", None, _OR),
    ("or", "versus", _AGAINST),
    ("side", "left", "left|lt|l|lul|lll|leftward"),
    ("side", "right", "right|rt|r|rul|rml|rll|rightward"),
    ("side", "bilateral", _BOTH_SIDES),
)
"""Kind, what it holds, phrases; a later one replaces an equal one."""
