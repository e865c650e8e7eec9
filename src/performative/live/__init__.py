"""A real federation: the same parts as in a simulation, over a network, with clients that may fail.

`Federation` defines what is learned; `rehearse` runs it in one process, `performative federation` on Flower. A client's
`Live` defines where its model is published and where its rows come from. `performative.live.flower` is the only module
that imports Flower.
"""

from performative.live.auditing import ask_for_sums
from performative.live.coordinator import rollback, serve
from performative.live.federation import Federation
from performative.live.journal import read_journal
from performative.live.member import Member
from performative.live.member_logs import MemberLogs
from performative.live.reading import load
from performative.live.rehearsal import rehearse
from performative.live.secure.settings import Secure
from performative.live.server_store import model_versions, read_events, read_model, read_status
from performative.live.sources.deployment import Deployed
from performative.live.sources.population import Live, Observed, TooFewRows
from performative.live.sources.publish import Callback, Endpoint, ModelFile
from performative.live.sources.readers import Folder, Function, Query
from performative.live.sources.rows import Rows
from performative.live.transport import AbstractTransport, InProcess, Reply
from performative.live.verification import Verification, verify_journal

__all__ = [
    "AbstractTransport",
    "Callback",
    "Deployed",
    "Endpoint",
    "Federation",
    "Folder",
    "Function",
    "InProcess",
    "Live",
    "Member",
    "MemberLogs",
    "ModelFile",
    "Observed",
    "Query",
    "Reply",
    "Rows",
    "Secure",
    "TooFewRows",
    "Verification",
    "ask_for_sums",
    "load",
    "model_versions",
    "read_events",
    "read_journal",
    "read_model",
    "read_status",
    "rehearse",
    "rollback",
    "serve",
    "verify_journal",
]
