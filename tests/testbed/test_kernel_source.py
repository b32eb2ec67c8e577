"""Which source the guest kernel is built from, and which files with which version."""

import hashlib
import tarfile
from pathlib import Path

import pytest

from testbed import needs
from testbed.kernel import build
from testbed.kernel.build import KernelError, find_source, fitted, source_version


def _archive(folder: Path, name: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"not unpacked here")
    return path


def _names(version: build.Version) -> list[str]:
    return [str(path.relative_to(build.HERE)) for path in fitted(version)]


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("linux-source-6.1.tar.xz", (6, 1)),
        ("linux-source-6.12.tar.xz", (6, 12)),
        ("linux-source-6.8.0.tar.bz2", (6, 8)),
        ("linux-source-5.15.0.tar.bz2", (5, 15)),
        ("linux-6.1.128.tar.xz", (6, 1)),
    ],
)
def test_the_archive_s_name_says_the_version(name: str, version: build.Version) -> None:
    assert source_version(Path("/usr/src") / name) == version


@pytest.mark.parametrize("name", ["linux.tar.xz", "source-6.1.tar.xz", "linux-6.1", "linux-6.tar"])
def test_an_archive_that_says_none_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(KernelError, match=r"/some/\S+: .*named like linux-source-6\.1\.tar\.xz"):
        source_version(Path("/some") / name)


def test_6_1_is_built_and_cached_as_ever(tmp_path: Path) -> None:
    # nobody's kernel is built again because newer ones can be built, too
    files = [build.CONFIG, *sorted(build.PATCHES.glob("*.patch"))]
    assert fitted((6, 1)) == files
    digest = hashlib.sha256(b"linux-source-6.1.tar.xz 17")
    for path in files:
        digest.update(path.name.encode() + path.read_bytes())
    digest.update(repr(sorted(build._ENVIRONMENT.items())).encode())
    source = _archive(tmp_path, "linux-source-6.1.tar.xz")
    assert build.kernel_path(source).parent.name == digest.hexdigest()[:16]


def test_a_newer_kernel_gets_the_newest_form_of_each_file_that_is_not_newer() -> None:
    assert _names((6, 8)) == [
        "guest.config",
        "patches/6.8/extra.config",
        "patches/0001-um-virtual-clock-repeats.patch",
        "patches/6.8/0002-um-leave-nothing-behind.patch",
        "patches/6.8/0003-netem-wire-frames.patch",
        "patches/6.8/0004-um-take-neighbouring-pages.patch",
        "patches/0005-netem-new-rate-for-all.patch",
    ]
    assert _names((6, 12)) == [
        "guest.config",
        "patches/6.12/extra.config",
        "patches/6.12/0001-um-virtual-clock-repeats.patch",
        "patches/6.12/0002-um-leave-nothing-behind.patch",
        "patches/6.8/0003-netem-wire-frames.patch",
        "patches/6.12/0004-um-take-neighbouring-pages.patch",
        "patches/0005-netem-new-rate-for-all.patch",
    ]
    # 6.8 < 6.12 as numbers, though not as words
    assert fitted((6, 9)) == fitted((6, 8))
    assert fitted((6, 2)) == fitted((6, 1))
    assert fitted((6, 17)) == fitted((7, 0)) == fitted((6, 12))


def test_every_version_has_every_patch_once_and_each_says_its_licence() -> None:
    numbers = [path.name for path in sorted(build.PATCHES.glob("*.patch"))]
    for version in ((6, 1), (6, 8), (6, 12)):
        patches = [path for path in fitted(version) if path.suffix == ".patch"]
        assert [path.name for path in patches] == numbers
        for path in patches:
            assert path.read_text().startswith("SPDX-License-Identifier: GPL-2.0-only\n")


def test_a_later_option_prevails_and_only_those_in_force_are_asked_for(tmp_path: Path) -> None:
    first, second = tmp_path / "a.config", tmp_path / "b.config"
    first.write_text('# words\nCONFIG_A=y\nCONFIG_B=y\nCONFIG_C="CONFIG_D=y"\n')
    second.write_text("# CONFIG_A is not set\nCONFIG_E=y\n")
    options = build._options([first, second])
    assert sorted(options) == [
        "# CONFIG_A is not set",
        "CONFIG_B=y",
        'CONFIG_C="CONFIG_D=y"',
        "CONFIG_E=y",
    ]
    config = tmp_path / ".config"
    config.write_text("CONFIG_B=y\nCONFIG_E=y\n")
    build._check_options(options, Path("linux-source-6.12.tar.xz"), config)
    config.write_text("CONFIG_B=y\n")
    with pytest.raises(KernelError, match=r"linux-source-6\.12\.tar\.xz lacks CONFIG_E=y; put"):
        build._check_options(options, Path("linux-source-6.12.tar.xz"), config)


def test_a_source_may_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = _archive(tmp_path, "linux-source-6.12.tar.xz")
    monkeypatch.setenv("NETSENSEML_KERNEL_SOURCE", str(source))
    assert find_source() == source
    # and then no package is asked for one
    assert "the guest kernel" not in {need.why for need in needs.needs()}


@pytest.mark.parametrize(("name", "says"), [("gone.tar.xz", "no file"), ("odd.tar", "named like")])
def test_a_named_source_that_is_none_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, says: str
) -> None:
    _archive(tmp_path, "odd.tar")
    monkeypatch.setenv("NETSENSEML_KERNEL_SOURCE", str(tmp_path / name))
    with pytest.raises(KernelError, match=says) as caught:
        find_source()
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def _preferred(folder: Path, names: list[str], monkeypatch: pytest.MonkeyPatch) -> str:
    for name in names:
        _archive(folder, name)
    monkeypatch.delenv("NETSENSEML_KERNEL_SOURCE", raising=False)
    monkeypatch.setattr(build, "SOURCES", folder)
    return find_source().name


@pytest.mark.parametrize(
    ("names", "best"),
    [
        (["linux-source-6.12.tar.xz", "linux-source-6.1.tar.xz"], "linux-source-6.1.tar.xz"),
        (
            ["linux-source-6.17.0/linux-source-6.17.0.tar.bz2", "linux-source-6.12.tar.xz"],
            "linux-source-6.12.tar.xz",
        ),
        (
            ["linux-source-5.15.0/linux-source-5.15.0.tar.bz2", "linux-source-6.17.0.tar.bz2"],
            "linux-source-6.17.0.tar.bz2",
        ),
        (["linux-source-6.8.0/linux-source-6.8.0.tar.bz2"], "linux-source-6.8.0.tar.bz2"),
        (["linux-source-extra.tar.xz", "linux-source-6.9.tar.xz"], "linux-source-6.9.tar.xz"),
    ],
)
def test_of_several_sources_the_one_most_likely_to_fit_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], best: str
) -> None:
    assert _preferred(tmp_path, names, monkeypatch) == best


def test_no_source_at_all_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KernelError, match=r"no kernel source in .*: apt-get install linux-source"):
        _preferred(tmp_path, [], monkeypatch)


def test_a_source_older_than_the_patches_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = _archive(tmp_path, "linux-source-5.15.0.tar.bz2")
    monkeypatch.setenv("NETSENSEML_KERNEL_SOURCE", str(source))
    monkeypatch.setenv("NETSENSEML_CACHE", str(tmp_path / "cache"))
    with pytest.raises(KernelError, match=r"5\.15\.0\.tar\.bz2 is too old .*linux-source-6\.1"):
        build.ensure()
    assert not (tmp_path / "cache").exists()


def test_patches_that_do_not_fit_stop_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "linux-source-6.5.0.tar.gz"
    with tarfile.open(source, "w:gz") as archive:
        empty = tarfile.TarInfo("linux-source-6.5.0")
        empty.type, empty.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(empty)
    monkeypatch.setenv("NETSENSEML_KERNEL_SOURCE", str(source))
    monkeypatch.setenv("NETSENSEML_CACHE", str(tmp_path / "cache"))
    says = r"^0001-\S+\.patch does not fit linux-source-6\.5\.0\.tar\.gz, see \S+; put .*6\.1"
    with pytest.raises(KernelError, match=says) as caught:
        build.ensure()
    assert "\n" not in str(caught.value)
    assert [path.name for path in (tmp_path / "cache").rglob("build-*")] == []


def test_ubuntu_s_archive_takes_bzip2_before_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NETSENSEML_KERNEL_SOURCE", raising=False)
    monkeypatch.setattr(needs, "_os_release", lambda: {"ID": "ubuntu", "VERSION_ID": "24.04"})
    asked = {need.package for need in needs.needs()}
    assert {"linux-source", "bzip2"} <= asked
