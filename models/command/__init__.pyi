from .model import CommandModel as CommandModel
