"""Write files for the tests of tables."""

import pytest


@pytest.fixture
def save(tmp_path):
    """Write text or bytes to a file with the given name; return its path."""

    def write(content, name="data.csv"):
        file = tmp_path / name
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file

    return write
