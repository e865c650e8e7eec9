"""What the logs of past deployments show: who reacts, how strongly, and where retraining leads."""

from typing import TYPE_CHECKING

from performative._base.lazy import later
from performative.audit.distance import Distances, shift_distances
from performative.audit.drivers import Driver, drivers
from performative.audit.effect import Effect, effect_test
from performative.audit.fit import Fit, fit
from performative.audit.fitted import fitted_problem
from performative.audit.log import ClientLog, with_covariances
from performative.audit.outlook import Outlook, outlook
from performative.audit.response import Direction, Response, response

if TYPE_CHECKING:
    from performative.audit.advice import Advice
    from performative.audit.audit_report import AuditReport
    from performative.audit.client_report import ClientReport
    from performative.audit.group_logs import groups_of_logs
    from performative.audit.groups import GroupReport, compare_groups, groups_of_problem
    from performative.audit.leaving import summarize
    from performative.audit.merging import merge_summaries
    from performative.audit.prospect import Prospect
    from performative.audit.reading import Logs, read_logs
    from performative.audit.report import audit_logs, audit_summaries
    from performative.audit.schema import LogError
    from performative.audit.source import Source, open_source
    from performative.audit.summaries import Summaries
    from performative.audit.travel import read_summaries, write_summaries

__all__ = [
    "Advice",
    "AuditReport",
    "ClientLog",
    "ClientReport",
    "Direction",
    "Distances",
    "Driver",
    "Effect",
    "Fit",
    "GroupReport",
    "LogError",
    "Logs",
    "Outlook",
    "Prospect",
    "Response",
    "Source",
    "Summaries",
    "audit_logs",
    "audit_summaries",
    "compare_groups",
    "drivers",
    "effect_test",
    "fit",
    "fitted_problem",
    "groups_of_logs",
    "groups_of_problem",
    "merge_summaries",
    "open_source",
    "outlook",
    "read_logs",
    "read_summaries",
    "response",
    "shift_distances",
    "summarize",
    "with_covariances",
    "write_summaries",
]

# Only names that no module of this package shares: a module of the same name would shadow the function.
__getattr__ = later(
    __name__,
    {
        "Advice": "advice",
        "AuditReport": "audit_report",
        "ClientReport": "client_report",
        "GroupReport": "groups",
        "LogError": "schema",
        "Logs": "reading",
        "Prospect": "prospect",
        "Source": "source",
        "Summaries": "summaries",
        "audit_logs": "report",
        "audit_summaries": "report",
        "compare_groups": "groups",
        "groups_of_logs": "group_logs",
        "groups_of_problem": "groups",
        "merge_summaries": "merging",
        "open_source": "source",
        "read_logs": "reading",
        "read_summaries": "travel",
        "summarize": "leaving",
        "write_summaries": "travel",
    },
    ("causes",),
)
