"""A module in training, and what one step of its validation has."""

import torch


class Module(torch.nn.Module):
    def log(self, name, value):
        print(name, float(value.compute()))


self = Module()
logits, target = torch.randn(2, 3, 16, 16, 8), torch.randint(0, 3, (2, 16, 16, 8))
