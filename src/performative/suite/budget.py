"""What a learner may spend, and what it has spent."""

import dataclasses

from performative._base.checks import check_number, check_rule


@dataclasses.dataclass(frozen=True)
class Budget:
    """Deployments, samples and time: what may be spent, was spent, or is left.

    Args:
        deployments: models shown to the world
        samples: rows seen, those of all clients together
        time: spells that the world went through: one a deployment, more where the learner waits
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
        """What is left once that is spent."""
        return Budget(self.deployments - other.deployments, self.samples - other.samples, self.time - other.time)

    def lacks(self, other: "Budget") -> list[str]:
        """Of what there is less than asked for, in words; empty where there is enough."""
        pairs = ((field.name, getattr(self, field.name), getattr(other, field.name)) for field in FIELDS)
        return [f"{name}: {asked} asked for, {there} left" for name, there, asked in pairs if asked > there]


FIELDS = dataclasses.fields(Budget)


class BudgetSpent(ValueError):
    """A deployment that would cost more than is left; nothing was deployed, and the environment counts the refusal."""
