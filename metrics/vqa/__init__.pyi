from .correctness import accuracy as accuracy
