"""The cost of secure aggregation for a client and the server: seconds and bytes per session. Nothing is asserted."""

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from performative.live.secure import keys
from performative.live.secure.assembly import Assembly
from performative.live.secure.participant import Participant
from performative.live.secure.session import Session

CLIENTS = tuple(int(n) for n in os.environ.get("PERFORMATIVE_BENCH_SECURE_CLIENTS", "10,50,100,200").split(","))
LENGTHS = tuple(int(d) for d in os.environ.get("PERFORMATIVE_BENCH_SECURE_LENGTHS", "10000,100000,1000000").split(","))
# Fraction of clients that have dropped out when their masked vector is requested.
DROPPED = 0.1
# Raw bytes: a key, a signature; a sealed pair of shares; one share.
_KEY, _SIGNATURE, _SEALED, _SHARE = 32, 64, 82, 33
# Up to this many numbers over all clients, everything is computed, and the sum is compared exactly.
_WHOLE = 1_000_000


def secure() -> dict[str, Any]:
    """A client's work, the server's without dropouts and with a tenth, and what a client sends and receives."""
    rows = [_session(clients, length) for clients in CLIENTS for length in LENGTHS]
    worst = rows[-1]
    return {
        "benchmark": f"secure: sessions of {CLIENTS[0]} to {CLIENTS[-1]} clients, {LENGTHS[-1]} numbers at most",
        **{
            f"{name}_n{row['clients']}_d{row['length']}": row[name] for row in rows for name in row if name[-2:] == "_s"
        },
        **{
            f"{name}_n{row['clients']}_d{row['length']}": row[name]
            for row in rows
            for name in row
            if name[-3:] == "_mb"
        },
        "rows": rows,
        "note": (
            f"{worst['clients']} clients, d={worst['length']}: {worst['client_s']:.2f} s per client, the server "
            f"{worst['server_s']:.2f} s, {worst['server_dropouts_s']:.1f} s if a tenth drop out"
        ),
    }


class _Clock:
    """Seconds of work, by party."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}

    def __call__(self, whose: str, work: Callable[..., Any], *given: Any) -> Any:
        began = time.perf_counter()
        result = work(*given)
        self.spent[whose] = self.spent.get(whose, 0.0) + time.perf_counter() - began
        return result


def _session(clients: int, length: int) -> dict[str, Any]:
    """Keys and shares of all clients, then the rest with and without dropouts. Client 0 is the one measured."""
    about = Session("bench", 0, "", length, 2 * clients // 3 + 1, clients, 2.0**-32, 2.0)
    identities = [keys.new_signing_key() for _ in range(clients)]
    roster = {i: keys.signing_public(key) for i, key in enumerate(identities)}
    people, clock = {i: Participant(about, i, 1.0) for i in range(clients)}, _Clock()
    adverts = {i: clock(_name(i), person.advertise, identities[i]) for i, person in people.items()}
    sealed = {i: clock(_name(i), person.share, adverts, roster) for i, person in people.items()}
    states = {i: person.to_bytes() for i, person in people.items()}
    calm, _ = _finish(about, states, adverts, sealed, identities, roster, 0, clock)
    _, dropouts = _finish(about, states, adverts, sealed, identities, roster, round(DROPPED * clients), _Clock())
    sent = 2 * _KEY + _SIGNATURE + clients * _SEALED + 8 * length + _SIGNATURE + clients * _SHARE
    received = clients * (2 * _KEY + _SIGNATURE) + clients * _SEALED + clients * _SIGNATURE
    return {
        "clients": clients, "length": length, "client_s": calm["client"], "server_s": calm["server"],
        "server_dropouts_s": dropouts, "sent_mb": sent / 1e6, "received_mb": received / 1e6,
        "plain_sent_mb": 4 * length / 1e6,
    }  # fmt: skip


def _finish(
    about: Session, states: dict[int, bytes], adverts: Any, sealed: Any, identities: list[bytes], roster: Any,
    gone: int, clock: _Clock,
) -> tuple[dict[str, float], float]:  # fmt: skip
    """From the masked vectors on. If that would take long, random vectors replace those of all but two clients."""
    here = {i: Participant.from_bytes(state) for i, state in states.items()}
    server, survivors = Assembly(about), tuple(range(len(states) - gone))
    server.adverts, server.sealed = adverts, sealed
    values = np.random.default_rng(0).integers(0, 1 << 40, about.length, np.uint64)
    whole = len(states) * about.length <= _WHOLE
    for i in survivors:
        mine = server.sealed_for(i)
        if whole or i < 2:
            vector = clock(_name(i), here[i].mask, mine, values)
        else:
            here[i].done, here[i].sealed, vector = 2, mine, values
        clock("server", server.add, i, vector)
    signed = {i: clock(_name(i), here[i].consent, survivors, identities[i]) for i in survivors}
    holders = survivors[: about.threshold]
    revealed = {i: clock(_name(i), here[i].reveal, signed, roster) for i in holders}
    total = clock("server", server.unmask, revealed)
    if whole and not np.array_equal(total, values * np.uint64(len(survivors))):
        raise AssertionError("the masked sum is not the plain sum")
    return clock.spent, clock.spent["server"]


def _name(client: int) -> str:
    return "client" if client == 0 else "others"


BENCHMARKS = {"secure": secure}
