from .declaration import (
    Benchmark as Benchmark,
    Number as Number,
    declared_names as declared_names,
    declared as declared,
)
from .readers import READERS as READERS, Reading as Reading
from .reproduction import (
    CLASSES as CLASSES,
    Reproduced as Reproduced,
    classify as classify,
    find_clone as find_clone,
    reproduce as reproduce,
)
from .sheet import published_sheet as published_sheet
