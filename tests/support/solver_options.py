"""Select solvers by name, for tests that use several of them."""

from meshnn.training.solvers import SOLVERS, solver_named


def solver_with(name, **options):
    """Return the solver of this name, with those options that it accepts."""
    solver = solver_named(name)
    return solver.set_params(**{k: v for k, v in options.items() if k in solver.get_params()})


def with_solver(options):
    """Return options of `train`, with those of the solver moved into its object."""
    own = {k for kind in SOLVERS for k in kind().get_params()}
    rest = {k: v for k, v in options.items() if k not in own}
    return rest | {"solver": solver_with(options["solver"], **{k: options[k] for k in own & options.keys()})}
