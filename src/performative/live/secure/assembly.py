"""The server's side of secure aggregation: it sums masked vectors and removes the masks from the sum.

    sum of x over U3 = sum of y over U3 - sum over u of U3 PRG(b_u) -+ sum over v of U2 - U3, u of U3 PRG(s_vu)

b_u of survivors and the masking keys of dropouts are reconstructed from t shares each.
"""

from collections.abc import Mapping

import numpy as np

from performative.live.secure import keys
from performative.live.secure.masks import add_mask
from performative.live.secure.session import Advert, Session, pair_key, seed_key
from performative.live.secure.shamir import SHARE, Joiner


class Unrecoverable(ValueError):
    """The sum of this round cannot be recovered. The message is the reason."""


class Assembly:
    """One session: U1 in `adverts`, U2 in `sealed`, U3 in `survivors`."""

    def __init__(self, session: Session):
        self.session = session
        self.adverts: dict[int, Advert] = {}
        self.sealed: dict[int, dict[int, bytes]] = {}
        self.survivors: set[int] = set()
        self._total = np.zeros(session.length, np.uint64)

    def enough(self, group: int, what: str) -> None:
        """Raise if there are fewer than the threshold."""
        if group < self.session.threshold:
            raise Unrecoverable(
                f"secure aggregation: received {what} of {group} clients, and the sum of fewer than "
                f"{self.session.threshold} is never revealed"
            )

    def sealed_for(self, client: int) -> dict[int, bytes]:
        """What all of U2 sealed for one client."""
        return {sender: shares[client] for sender, shares in self.sealed.items()}

    def add(self, client: int, masked: np.ndarray) -> None:
        """Add a masked vector to the sum; it is not kept."""
        if client in self.survivors or client not in self.sealed:
            raise ValueError(f"client {client} has already sent a vector, or sent no shares")
        self._total += masked
        self.survivors.add(client)

    def unmask(self, revealed: Mapping[int, Mapping[int, bytes]]) -> np.ndarray:
        """The sum of the survivors' vectors, from the shares that clients revealed; by holder, then owner."""
        self.enough(len(revealed), "shares")
        holders = sorted(revealed)[: self.session.threshold]
        joiner, total = Joiner(holders), self._total.copy()
        for owner in sorted(self.sealed):
            shares = {holder: revealed[holder].get(owner, b"") for holder in holders}
            if any(len(share) != SHARE for share in shares.values()):
                raise Unrecoverable(f"secure aggregation: shares of client {owner} are missing")
            try:
                secret = joiner.join(shares)
            except ValueError as error:
                raise Unrecoverable(f"secure aggregation: client {owner}: {error}") from error
            if owner in self.survivors:
                add_mask(total, seed_key(self.session, secret, owner), -1)
            else:
                self._take_off_pairs(total, owner, secret)
        return total

    def _take_off_pairs(self, total: np.ndarray, gone: int, masking: bytes) -> None:
        """Remove the masks that survivors share with a client whose vector never arrived."""
        if keys.agreement_public(masking) != self.adverts[gone].masking:
            raise Unrecoverable(f"secure aggregation: the shares of client {gone}'s key do not reconstruct its key")
        for other in sorted(self.survivors):
            key = pair_key(self.session, masking, gone, other, self.adverts[other].masking)
            add_mask(total, key, -1 if other < gone else 1)
