"""What completion offers."""

import gbackprop as gb


def test_the_package_lists_its_public_names_and_no_modules_beside_them():
    assert set(dir(gb)) == {*gb.__all__, "__version__"}
    assert all(hasattr(gb, name) for name in dir(gb))
