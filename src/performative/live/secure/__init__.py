"""Secure aggregation: the server learns the sum of a round's updates, but no individual one.

The protocol of Bonawitz et al. 2017 against an active server, with `cryptography`'s primitives, on integers modulo
2^64. `participant` is the client's side, `assembly` the server's; `stages` and `collecting` run them over a
federation's transport. Flower's own SecAgg+ handles the fit results of its legacy workflow, signs nothing, and so
trusts the server to tell everyone the same: it cannot carry these messages.
"""
