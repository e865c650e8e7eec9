"""The budget of a learner and what it has spent."""

import dataclasses

from performative._base.checks import check_number, check_rule


@dataclasses.dataclass(frozen=True)
class Budget:
    """Deployments, samples and time: the total budget, what has been spent, or what is left.

    Args:
        deployments: number of deployed models
        samples: rows observed, summed over all clients
        time: time steps: one per deployment, more if the learner waits
    """

    deployments: int
    samples: int
    time: int

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            check_number("Budget", **{field.name: value})
            check_rule("Budget", "must not be negative", **{field.name: value})
            if value != int(value):
                raise ValueError(f"Budget: {field.name} must be a whole number; got {value!r}.")
            object.__setattr__(self, field.name, int(value))

    def __add__(self, other: "Budget") -> "Budget":
        return Budget(self.deployments + other.deployments, self.samples + other.samples, self.time + other.time)

    def less(self, other: "Budget") -> "Budget":
        """Return what is left after spending `other`."""
        return Budget(self.deployments - other.deployments, self.samples - other.samples, self.time - other.time)

    def lacks(self, other: "Budget") -> list[str]:
        """Describe each resource that falls short of `other`; empty if there is enough of all."""
        pairs = ((field.name, getattr(self, field.name), getattr(other, field.name)) for field in FIELDS)
        return [f"{name}: {asked} requested, {there} left" for name, there, asked in pairs if asked > there]


FIELDS = dataclasses.fields(Budget)


class BudgetSpent(ValueError):
    """Raised when a deployment would exceed the budget; nothing is deployed, and the environment counts the refusal."""
