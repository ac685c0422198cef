from .criteria import (
    Analysis as Analysis,
    Endpoint as Endpoint,
    ORDERS as ORDERS,
    as_accept as as_accept,
    read_endpoints as read_endpoints,
)
from .pilot import Need as Need, declared_design as declared_design, needs as needs
from .pilot import required_units as required_units
from .planning import (
    LABELS as LABELS,
    Plan as Plan,
    deviations as deviations,
    make_plan as make_plan,
    read_plan as read_plan,
    remarks as remarks,
    write_plan as write_plan,
)
from .signatures import sign as sign, verify as verify, verify_all as verify_all
from .verdicts import Verdict as Verdict, judge as judge, verdict_sheet as verdict_sheet
from .judgements import ACCEPTANCE as ACCEPTANCE, Judgement as Judgement, judge_runs as judge_runs
