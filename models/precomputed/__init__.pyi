from .texts import PrecomputedReports as PrecomputedReports
