"""What a command has printed."""


def said(capsys):
    """Output and errors, each in one line: where lines break depends on the terminal."""
    printed = capsys.readouterr()
    return " ".join(printed.out.split()), " ".join(printed.err.split())
