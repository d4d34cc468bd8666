"""How the tests ask a command for its refusal."""

from gbackprop.__main__ import main


def refused(capsys, *arguments, prints=False):
    """The one line on standard error of a command that ends with status 2, without its head.

    It prints nothing, or what it could say before it knew.
    """
    capsys.readouterr()  # what commands before it printed
    assert main([*map(str, arguments)]) == 2
    captured = capsys.readouterr()
    assert bool(captured.out) == prints
    (line,) = captured.err.splitlines()
    head = f"gbackprop {arguments[0]}: "
    assert line.startswith(head)
    return line.removeprefix(head)
