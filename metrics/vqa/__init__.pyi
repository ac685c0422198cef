from .correctness import accuracy as accuracy, accuracy_or_exact_match as accuracy_or_exact_match
