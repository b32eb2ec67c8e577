import shutil
from pathlib import Path

import pytest

from testbed.needs import Need, apt_line, find_command, missing, needs, packages, source_package


def test_a_need_names_exactly_what_is_not_there(tmp_path: Path) -> None:
    there = tmp_path / "file"
    there.touch()
    assert Need("p", "w", ("sh",), (str(there),), ("json",)).lacks() == []
    need = Need("p", "w", ("sh", "no-such-tool"), (str(tmp_path / "other*"),), ("no_such_module",))
    assert need.lacks() == ["no-such-tool", str(tmp_path / "other*"), "no_such_module"]
    assert missing([need, Need("q", "w", ("sh",))]) == [need]


def test_one_pattern_of_several_is_enough(tmp_path: Path) -> None:
    (tmp_path / "b.tar.bz2").touch()
    assert Need("p", "w", globs=(f"{tmp_path}/a*", f"{tmp_path}/b*")).lacks() == []


def test_each_package_is_asked_for_once_in_one_line() -> None:
    lacking = [Need("b", "w"), Need("a", "w"), Need("b", "w")]
    line = apt_line(packages(lacking))
    assert line == "apt-get install -y --no-install-recommends a b"


def test_commands_are_found_where_an_ordinary_path_does_not_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shutil.which("tc") is None
    found = find_command("tc")
    assert found is not None
    assert Path(found).name == "tc"


@pytest.mark.parametrize(
    ("release", "package"),
    [
        ({"ID": "debian", "VERSION_ID": "12"}, "linux-source-6.1"),
        ({"ID": "debian", "VERSION_ID": "13"}, "linux-source"),
        ({"ID": "ubuntu", "VERSION_ID": "22.04"}, "linux-source"),
        ({"ID": "ubuntu", "VERSION_ID": "24.04"}, "linux-source"),
        ({}, "linux-source"),
    ],
)
def test_the_kernel_source_is_asked_for_by_the_distribution_s_name(
    release: dict[str, str], package: str
) -> None:
    assert source_package(release) == package


def test_this_machine_has_all_that_the_tests_run_with() -> None:
    # `make test` sets it up first
    assert missing(needs()) == []
