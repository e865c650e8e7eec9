"""Secure aggregation: the server learns the sum of a round's updates and no single one.

The protocol of Bonawitz et al. 2017 against an active server, with `cryptography`'s primitives, on integers modulo
2^64. `participant` is a client's side, `assembly` the server's; `stages` and `collecting` carry them over the transport
of a federation. Flower's own SecAgg+ carries the fit results of its legacy workflow, signs nothing, and so trusts the
server to tell everybody the same: it cannot carry these messages.
"""
