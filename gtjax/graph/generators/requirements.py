"""The rules a generator's arguments obey, as errors that name the argument and its value."""

from gtjax.core.errors import UserError


def require_at_least(name: str, value: float, least: float) -> None:
    """Raise unless `value` is a number of at least `least`."""
    if not value >= least:  # written so that NaN fails too
        raise UserError(f"{name} is at least {least}; found {value}. Raise {name}.")


def require_sizes(*, nodes: int, classes: int, features: int, seed: int) -> None:
    """Raise unless the arguments that every generator takes are in range."""
    require_at_least("nodes", nodes, 1)
    if nodes > 2**31:
        raise UserError(f"a generated graph has at most 2^31 nodes; found {nodes}. Lower nodes.")
    require_at_least("classes", classes, 1)
    require_at_least("features", features, 0)
    require_at_least("seed", seed, 0)


def require_fraction(name: str, value: float) -> None:
    """Raise unless `value` lies in 0..1."""
    if not 0 <= value <= 1:
        raise UserError(f"{name} is a fraction in 0..1; found {value}. Choose one in that range.")
