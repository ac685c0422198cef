from .model import CommandModel as CommandModel
from .process import Patience as Patience
from .server import ServerProcess as ServerProcess, free_port as free_port
