"""Secure aggregation by itself: exact sums, dropouts, and a server that lies."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from performative.live.secure import keys
from performative.live.secure.assembly import Assembly, Unrecoverable
from performative.live.secure.masks import add_mask
from performative.live.secure.participant import Participant
from performative.live.secure.ring import WEIGHT_UNIT, TooLarge, from_ring, limit, to_ring
from performative.live.secure.session import Breach, Session, pair_key, survivors_statement

IDENTITIES = [keys.new_signing_key() for _ in range(9)]
ROSTER = {i: keys.signing_public(key) for i, key in enumerate(IDENTITIES)}


def session(clients=6, threshold=4, length=50, **options):
    told = {"run": "a", "round": 3, "model": "m", "step": 2.0**-20, "weight_ratio": 4.0} | options
    return Session(length=length, threshold=threshold, clients=clients, **told)


class Play:
    """A whole session in memory, one method a step; tests alter what passes between."""

    def __init__(self, about=None, clients=6, seed=0):
        self.about = session(clients=clients) if about is None else about
        rng = np.random.default_rng(seed)
        self.values = {i: rng.integers(0, 1 << 64, self.about.length, np.uint64) for i in range(clients)}
        self.people = {i: Participant(self.about, i, 1.0) for i in range(clients)}
        self.server = Assembly(self.about)

    def keys(self, gone=()):
        for i in self.people.keys() - set(gone):
            self.server.adverts[i] = self.people[i].advertise(IDENTITIES[i])
        return self

    def shares(self, gone=()):
        for i in self.server.adverts.keys() - set(gone):
            self.server.sealed[i] = self.people[i].share(self.server.adverts, ROSTER)
        return self

    def masked(self, gone=()):
        for i in sorted(self.server.sealed.keys() - set(gone)):
            self.server.add(i, self.people[i].mask(self.server.sealed_for(i), self.values[i]))
        return self

    def consents(self, gone=()):
        there = tuple(sorted(self.server.survivors))
        return {i: self.people[i].consent(there, IDENTITIES[i]) for i in there if i not in gone}

    def revealed(self, consents, gone=()):
        return {i: self.people[i].reveal(consents, ROSTER) for i in consents if i not in gone}

    def plain(self):
        """The sum of the survivors in Python's integers."""
        total = sum(self.values[i].astype(object) for i in self.server.survivors)
        return np.asarray([int(entry) % (1 << 64) for entry in total], np.uint64)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_the_masked_sum_is_the_plain_sum(data):
    """Whoever drops out at whichever step, as long as the threshold is kept."""
    clients = data.draw(st.integers(2, 9))
    threshold = data.draw(st.integers(clients // 2 + 1, clients))
    play = Play(session(clients, threshold, length=data.draw(st.integers(1, 40))), clients, data.draw(st.integers(0)))
    left, gone = list(range(clients)), []
    for _ in range(4):
        lost = data.draw(st.lists(st.sampled_from(left), unique=True, max_size=len(left) - threshold))
        left = [i for i in left if i not in lost]
        gone.append(lost)
    play.keys(gone[0]).shares(gone[1]).masked(gone[2])
    consents = play.consents(gone[3])
    assert np.array_equal(play.server.unmask(play.revealed(consents)), play.plain())


def test_one_masked_vector_says_nothing():
    """The vectors of two plays with the same keys but other values differ by the values alone; those of one client in
    two sessions look like noise: no bit of a masked vector follows the values."""
    play = Play(session(length=20_000))
    play.values = {i: np.zeros(20_000, np.uint64) for i in range(6)}
    play.keys().shares()
    masked = play.people[2].mask(play.server.sealed_for(2), play.values[2])
    ones = np.unpackbits(masked.view(np.uint8)).mean()
    # 1,280,000 fair bits: four standard errors are 0.0018.
    assert abs(ones - 0.5) < 4 * 0.5 / np.sqrt(64 * 20_000)
    assert len(set(masked.tolist())) == 20_000


def test_too_many_dropouts():
    """Below the threshold nobody gives the server anything."""
    play = Play().keys().shares()
    play.masked(gone=(0, 1, 2))
    with pytest.raises(Breach, match="received vectors of 3 clients; only the sum of 4 to 6 may be revealed"):
        play.consents()
    play = Play().keys().shares().masked(gone=(0,))
    consents = play.consents()
    with pytest.raises(Unrecoverable, match="received shares of 3 clients, and the sum of fewer than 4"):
        play.server.unmask(play.revealed(consents, gone=(4, 5)))
    with pytest.raises(Breach, match="received keys of 3 clients"):
        Play().keys(gone=(0, 1, 2)).shares()
    with pytest.raises(Breach, match="received shares of 3 clients"):
        Play().keys().shares(gone=(0, 1, 2)).masked()


def test_a_server_that_tells_different_survivors_to_different_clients():
    """It wants shares of client 5's seed from some and of its key from others: that would lay its vector bare."""
    play = Play().keys().shares().masked()
    everyone, without = (0, 1, 2, 3, 4, 5), (0, 1, 2, 3, 4)
    consents = {i: play.people[i].consent(everyone if i in (0, 1, 5) else without, IDENTITIES[i]) for i in everyone}
    for i in range(6):
        with pytest.raises(Breach, match="has not signed the survivors sent to this client"):
            play.people[i].reveal({j: consents[j] for j in (everyone if i in (0, 1, 5) else without)}, ROSTER)
    # Only those who were told the same are three and three, below the threshold of four.
    for group in ((0, 1, 5), (2, 3, 4)):
        for i in group:
            again = Participant.from_bytes(play.people[i].to_bytes())
            again.done -= 1
            with pytest.raises(Breach, match=r"received signatures of 3 clients|omits"):
                again.reveal({j: consents[j] for j in group}, ROSTER)


def test_a_server_that_forges_signatures():
    play = Play().keys().shares().masked()
    consents = play.consents()
    forged = consents | {3: keys.sign(IDENTITIES[2], _statement(play))}
    with pytest.raises(Breach, match="client 3 has not signed"):
        play.people[0].reveal(forged, ROSTER)


def _statement(play):
    """What everyone signs when nobody is gone."""
    return survivors_statement(play.about, tuple(range(6)), play.server.adverts)


def test_a_signature_of_a_round_that_is_played_again():
    """A server that repeats a round (by a run in between) has old signatures for the same clients: they are for other
    keys, so it cannot show two lists of survivors, each with signatures of the threshold."""
    old, now = Play().keys().shares().masked(), Play().keys().shares().masked()
    again = old.consents()
    assert again[1] == keys.sign(IDENTITIES[1], _statement(old)) != keys.sign(IDENTITIES[1], _statement(now))
    consents = now.consents()
    with pytest.raises(Breach, match="client 1 has not signed the survivors"):
        now.people[0].reveal(consents | {1: again[1]}, ROSTER)


@pytest.mark.parametrize("bad", [bytes(32), bytes(31), (1).to_bytes(32, "little")])
def test_keys_that_agree_on_no_secret(bad):
    """A weak key gives a secret that everyone knows; one of another length none. Its owner is named."""
    play = Play().keys()
    weak = dataclasses.replace(play.server.adverts[1], masking=bad).signed(play.about, IDENTITIES[1])
    with pytest.raises(Breach, match="the keys of client 1 are not valid"):
        play.people[0].share(play.server.adverts | {1: weak}, ROSTER)


def test_different_clients_for_different_clients():
    """A server shows client 0 the clients 0..5, and 1..3 others, with which they are busy: too few have then sealed
    shares for client 0, and it sends no vector."""
    play = Play(session(clients=6, threshold=4), clients=9).keys()
    adverts = play.server.adverts
    first, second = (0, 1, 2, 3, 4, 5), (1, 2, 3, 6, 7, 8)
    sealed = {i: play.people[i].share({j: adverts[j] for j in first}, ROSTER) for i in (0, 4, 5)}
    sealed |= {i: play.people[i].share({j: adverts[j] for j in second}, ROSTER) for i in (1, 2, 3, 6, 7, 8)}
    # 1, 2 and 3 sealed nothing for 0, nor does it know them as senders: its sum has too few clients.
    with pytest.raises(Breach, match="received shares of 3 clients"):
        play.people[0].mask({i: sealed[i][0] for i in (0, 4, 5)}, play.values[0])


def test_never_both_shares_of_one_client():
    """Whatever is asked and in whatever order: of each client a seed's share or a key's, once."""
    play = Play().keys().shares().masked(gone=(5,))
    consents = play.consents()
    shares = play.people[0].reveal(consents, ROSTER)
    key_and_seed = {owner: play.people[0]._opened(owner) for owner in range(6)}
    assert all(shares[owner] == key_and_seed[owner][1] for owner in range(5))
    assert shares[5] == key_and_seed[5][0]
    with pytest.raises(Breach, match="each comes once, in order"):
        play.people[0].reveal(consents, ROSTER)
    with pytest.raises(Breach, match="each comes once, in order"):
        play.people[0].consent((0, 1, 2, 3), IDENTITIES[0])


def test_a_replayed_message_of_another_round():
    """Keys and shares of round 2 do not pass in round 3."""
    earlier, now = Play(session(round=2)).keys().shares(), Play().keys()
    with pytest.raises(Breach, match="keys of client 1 are not signed by it for this round"):
        now.people[0].share(now.server.adverts | {1: earlier.server.adverts[1]}, ROSTER)
    now = Play().keys().shares()
    now.server.sealed[1][0] = earlier.server.sealed[1][0]
    with pytest.raises(Breach, match="shares of client 1 were altered, or belong to another round"):
        now.people[0].mask(now.server.sealed_for(0), now.values[0])


def test_shares_that_were_altered_or_meant_for_somebody_else():
    play = Play().keys().shares()
    for bad in (play.server.sealed[1][2], bytes([play.server.sealed[1][0][0] ^ 1]) + play.server.sealed[1][0][1:], b""):
        again = Participant.from_bytes(play.people[0].to_bytes())
        with pytest.raises(Breach, match="shares of client 1 were altered"):
            again.mask(play.server.sealed_for(0) | {1: bad}, play.values[0])


def test_a_server_that_puts_its_own_keys_in():
    """The man in the middle holds no identity that the others know."""
    play = Play().keys()
    mine = Participant(play.about, 1, 1.0).advertise(keys.new_signing_key())
    with pytest.raises(Breach, match="keys of client 1 are not signed by it"):
        play.people[0].share(play.server.adverts | {1: mine}, ROSTER)
    with pytest.raises(Breach, match="client 8 is not on this client's roster"):
        stranger = dataclasses.replace(play.server.adverts[1], client=8)
        adverts = {k: v for k, v in play.server.adverts.items() if k != 1} | {8: stranger}
        fresh = Participant.from_bytes(play.people[0].to_bytes())
        fresh.done = 0
        fresh.share(adverts, {k: v for k, v in ROSTER.items() if k != 8})


def test_more_clients_than_a_round_has():
    """With more than K, two disjoint sets could reach the threshold."""
    play = Play(session(clients=5, threshold=3), clients=6).keys()
    with pytest.raises(Breach, match="received keys of 6 clients; only the sum of 3 to 5 may be revealed"):
        play.people[0].share(play.server.adverts, ROSTER)


def test_a_server_that_lets_one_client_count_alone():
    """Weights are signed and shown to all: one heavy client among light ones would be seen in the sum."""
    play = Play()
    play.people[2].weight = 1e6
    with pytest.raises(Breach, match="the sum would be one client's update"):
        play.keys().shares()


def test_another_session_has_other_masks():
    """The same two keys in two rounds: what is derived from them differs."""
    one, two = keys.new_agreement_key(), keys.new_agreement_key()
    made = [pair_key(session(round=r), one, 0, 1, keys.agreement_public(two)) for r in (1, 2)]
    assert made[0] != made[1]
    assert made[0] == pair_key(session(round=1), two, 1, 0, keys.agreement_public(one))


def test_wrong_shares_of_a_key_are_noticed():
    play = Play().keys().shares().masked(gone=(5,))
    revealed = play.revealed(play.consents())
    revealed[0] = {**revealed[0], 5: revealed[0][4]}
    with pytest.raises(Unrecoverable, match="client 5"):
        play.server.unmask(revealed)


def test_state_survives_the_disk():
    """Written down after every step and read back, the same bytes come out."""
    play = Play()
    for step in (play.keys, play.shares, play.masked):
        step()
        play.people = {i: Participant.from_bytes(person.to_bytes()) for i, person in play.people.items()}
    consents = play.consents()
    assert np.array_equal(play.server.unmask(play.revealed(consents)), play.plain())


# --- integers


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=20),
    weights=st.lists(st.floats(0.01, 2.0), min_size=1, max_size=8),
)
def test_a_sum_of_integers_is_off_by_half_a_step(values, weights):
    K, step, total = len(weights), 2.0**-20, np.zeros(len(values) + 1, np.uint64)
    for weight in weights:
        total += to_ring(np.asarray(values), weight, step, K)
    found, units = from_ring(total, step, K)
    exact = sum(weights) * np.asarray(values)
    assert np.all(np.abs(found - exact) <= step / 2 + 1e-12 * np.abs(exact))
    assert abs(units * WEIGHT_UNIT - sum(weights)) <= K * WEIGHT_UNIT


def test_the_overflow_rule():
    """K of the largest entries fit to the last unit; what is larger is refused, and so is what is no number."""
    step, K = 2.0**-20, 7
    most = np.nextafter(float(limit(K)), 0) * step / K
    for sign in (1, -1):
        one = to_ring(np.asarray([sign * most]), 1.0, step, K)
        exact, wrapped = K * int(one.view(np.int64)[0]), np.zeros(2, np.uint64)
        for _ in range(K):
            wrapped += one
        assert (1 << 62) < abs(exact) < 1 << 63
        assert int(wrapped.view(np.int64)[0]) == exact
    for bad in (1.001 * most, -1.001 * most, np.nan, np.inf, -np.inf, 1e308):
        with pytest.raises(TooLarge, match="non-finite, or exceeds"):
            to_ring(np.asarray([0.0, bad]), 1.0, step, K)
    for weight in (0.0, -1.0, np.nan):
        with pytest.raises(TooLarge, match="the weight"):
            to_ring(np.zeros(2), weight, step, K)


def test_masks_are_aes_in_counter_mode():
    """The known answer of AES-256 for an all-zero key and block (FIPS 197 by NIST's GFSbox and KeySbox vectors)."""
    total = np.zeros(2, np.uint64)
    add_mask(total, bytes(32), 1)
    assert total.tobytes().hex() == "dc95c078a2408989ad48a21492842087"
    add_mask(total, bytes(32), -1)
    assert not total.any()


@pytest.mark.parametrize("length", [1, 32767, 32768, 32769, 100_000])
def test_a_mask_does_not_depend_on_blocks(length):
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    key, total = bytes(range(32)), np.arange(length, dtype=np.uint64)
    add_mask(total, key, -1)
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(8 * length))
    assert np.array_equal(total, np.arange(length, dtype=np.uint64) - np.frombuffer(stream, "<u8"))
