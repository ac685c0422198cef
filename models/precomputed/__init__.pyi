from .texts import LoggedReplies as LoggedReplies, PrecomputedReports as PrecomputedReports
