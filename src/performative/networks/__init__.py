"""Neural networks as models: theta is the pytree of their arrays, the rest is a function of theta and one sample."""

from performative.networks.ready import cnn, lenet5, mlp
from performative.networks.resnet import resnet18
from performative.networks.split import Network, split

__all__ = ["Network", "cnn", "lenet5", "mlp", "resnet18", "split"]
