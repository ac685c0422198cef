from .folder import PhiReport as PhiReport, scan_folder as scan_folder
from .ps3_15 import EDITION as EDITION
from .values import KINDS as KINDS
from .quick_scan import identities as identities, scan as scan, scan_names as scan_names
